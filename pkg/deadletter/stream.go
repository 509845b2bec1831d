package deadletter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// batch is the position of records in the stream of a DynamoDB table.
type batch struct {
	ShardID string `json:"shardId"`
	Start   string `json:"startSequenceNumber"`
	End     string `json:"endSequenceNumber"`
	Size    int    `json:"batchSize"`
	Stream  string `json:"streamArn"`
}

// maxAnswer bounds an answer of the stream: GetRecords returns at most 1 MB.
const maxAnswer = 4 << 20

// records reads the records of a batch, in the JSON form in which Lambda gives them to a
// function. The SDK's client would decode them into types that do not encode to this form
// again, so the requests are signed here.
func (r *Replayer) records(ctx context.Context, b batch) ([]json.RawMessage, error) {
	end, ok := new(big.Int).SetString(b.End, 10)
	if !ok || !strings.HasPrefix(b.Stream, "arn:") || !strings.Contains(b.Stream, ":table/") {
		return nil, errForeign
	}
	var iterator struct{ ShardIterator string }
	err := r.streams(ctx, "GetShardIterator", map[string]any{"StreamArn": b.Stream, "ShardId": b.ShardID,
		"ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": b.Start}, &iterator)
	if err != nil {
		return nil, err
	}
	var found []json.RawMessage
	for at := iterator.ShardIterator; at != ""; {
		var page struct {
			Records           []json.RawMessage
			NextShardIterator string
		}
		if err := r.streams(ctx, "GetRecords", map[string]any{"ShardIterator": at, "Limit": 1000}, &page); err != nil {
			return nil, err
		}
		for _, raw := range page.Records {
			var record struct {
				Dynamodb struct{ SequenceNumber string } `json:"dynamodb"`
			}
			if err := json.Unmarshal(raw, &record); err != nil {
				return nil, fmt.Errorf("read a record of the stream: %w", err)
			}
			n, ok := new(big.Int).SetString(record.Dynamodb.SequenceNumber, 10)
			if !ok || n.Cmp(end) > 0 {
				return found, nil
			}
			found = append(found, raw)
			if n.Cmp(end) == 0 {
				return found, nil
			}
		}
		if len(page.Records) == 0 {
			break // the end of what the shard has now
		}
		at = page.NextShardIterator
	}
	if len(found) == 0 {
		return nil, errExpired
	}
	return found, nil
}

// streams sends one request to the API of DynamoDB Streams.
func (r *Replayer) streams(ctx context.Context, operation string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s: %w", operation, err)
	}
	url := "https://streams.dynamodb." + r.cfg.Region + ".amazonaws.com/"
	if strings.HasPrefix(r.cfg.Region, "cn-") {
		url = "https://streams.dynamodb." + r.cfg.Region + ".amazonaws.com.cn/"
	}
	if r.cfg.BaseEndpoint != nil {
		url = *r.cfg.BaseEndpoint
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("request %s: %w", operation, err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDBStreams_20120810."+operation)
	credentials, err := r.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("find AWS credentials: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), "dynamodb", r.cfg.Region, time.Now()); err != nil {
		return fmt.Errorf("sign %s: %w", operation, err)
	}
	res, err := r.o.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("%s of the table's stream: %w", operation, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s of the table's stream: %w", operation, err)
	}
	if res.StatusCode != http.StatusOK {
		var problem struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}
		_ = json.Unmarshal(answer, &problem) // an answer of a proxy is not JSON; its status remains
		kind := problem.Type[strings.LastIndexByte(problem.Type, '#')+1:]
		if kind == "TrimmedDataAccessException" || kind == "ResourceNotFoundException" {
			return errExpired // the shard or the position no longer exists
		}
		return errors.New(strings.TrimSpace(fmt.Sprintf("%s of the table's stream: %s %s %s", operation, res.Status, kind, problem.Message)))
	}
	return json.Unmarshal(answer, out)
}
