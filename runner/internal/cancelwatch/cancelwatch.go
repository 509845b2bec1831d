// Package cancelwatch looks for the cancel marker of an attempt. It sends signed requests to
// DynamoDB without the service's SDK, whose start would delay each step.
package cancelwatch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/fairlead/fairlead/pkg/cancelmark"
)

// Marker finds out whether an attempt's cancel marker exists. Safe for concurrent use.
type Marker struct {
	// Place is the location of the marker, as the control plane sent it.
	Place cancelmark.Place
	// Region is the AWS region of the place.
	Region string
	// Credentials sign the requests. They are asked for each request.
	Credentials aws.CredentialsProvider
	// HTTP sends the requests.
	HTTP *http.Client
	// Now is the clock of the signatures.
	Now func() time.Time
}

// maxAnswer limits the bytes of an answer: a marker has two short attributes.
const maxAnswer = 4 << 10

// Found reports whether the marker exists. The read is eventually consistent, which costs half
// and is late by much less than the time between two looks.
func (m *Marker) Found(ctx context.Context) (bool, error) {
	type attribute struct{ S string }
	body, err := json.Marshal(struct {
		TableName            string
		Key                  map[string]attribute
		ProjectionExpression string
	}{m.Place.Table, map[string]attribute{cancelmark.AttrAttempt: {m.Place.Key}}, cancelmark.AttrAttempt})
	if err != nil {
		return false, fmt.Errorf("look for the cancel marker: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Place.URL, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("look for the cancel marker: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
	credentials, err := m.Credentials.Retrieve(ctx)
	if err != nil {
		return false, fmt.Errorf("look for the cancel marker: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), "dynamodb", m.Region, m.Now()); err != nil {
		return false, fmt.Errorf("look for the cancel marker: sign the request: %w", err)
	}
	res, err := m.HTTP.Do(req)
	if err != nil {
		return false, fmt.Errorf("look for the cancel marker: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return false, fmt.Errorf("look for the cancel marker: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		var problem struct {
			Type string `json:"__type"`
		}
		_ = json.Unmarshal(b, &problem) // the status is the error if the body is not JSON, as from a proxy
		return false, fmt.Errorf("look for the cancel marker: DynamoDB answered %d %s", res.StatusCode, problem.Type)
	}
	var answer struct{ Item map[string]attribute }
	if err := json.Unmarshal(b, &answer); err != nil {
		return false, fmt.Errorf("look for the cancel marker: the answer is not JSON: %w", err)
	}
	return answer.Item[cancelmark.AttrAttempt].S == m.Place.Key, nil
}
