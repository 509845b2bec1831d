package sim

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/cancelmark/cancelmarktest"
	"github.com/fairlead/fairlead/pkg/identity"
)

// marksHost is the host of the table of cancel markers.
const marksHost = "dynamodb.example"

// marks are the cancel markers. If lost is true, each write is lost.
type marks struct {
	cancelmarktest.Memory
	lost bool
}

// Put implements cancelmark.Marks.
func (m *marks) Put(ctx context.Context, a cancelmark.Attempt) error {
	if m.lost {
		return nil
	}
	return m.Memory.Put(ctx, a)
}

// markAccess lets an attempt read its cancel marker, as on AWS. It gives sessions no queue, so
// agents claim through the API.
type markAccess struct{}

// Grant implements identity.Granter.
func (markAccess) Grant(_ context.Context, s identity.Scope) (identity.Access, error) {
	if s.Job == "" {
		return identity.Access{}, errors.New("this model has no queue")
	}
	return identity.Access{Region: "eu-central-1", AccessKeyID: "ASIA", SecretAccessKey: "simulated-secret", SessionToken: "simulated-session", Expires: time.Now().Add(15 * time.Minute),
		LogGroup: "/fairlead", Cancel: cancelmark.Place{URL: "https://" + marksHost, Table: "cancels", Key: cancelmark.Attempt{Install: s.Install, Job: s.Job, Epoch: s.Epoch}.Key()}}, nil
}

// cloud answers a request to a service of AWS. Only the table of cancel markers can be reached,
// so a step sends its log through the API.
func (l *link) cloud(req *http.Request, body []byte, place string) (*http.Response, error) {
	if err := l.travel(req.Context(), "there "+place, false); err != nil {
		return nil, err
	}
	if req.URL.Host != marksHost {
		return nil, errRefused
	}
	var in struct {
		Key struct {
			Attempt struct{ S string } `json:"attempt"`
		}
	}
	out := &answer{header: http.Header{}}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	item := map[string]any{}
	if key := in.Key.Attempt.S; l.p.w.plan.marks.Has(key) {
		item["Item"] = map[string]any{cancelmark.AttrAttempt: map[string]string{"S": key}}
	}
	if err := json.NewEncoder(out).Encode(item); err != nil {
		return nil, err
	}
	if err := l.travel(req.Context(), "back "+place, false); err != nil {
		return nil, err
	}
	res := out.response(int64(len(out.body)))
	res.Request = req
	return res, nil
}

// ofCloud reports whether a request is to AWS and not to the control plane.
func ofCloud(req *http.Request) bool {
	return req.URL.Host == marksHost || strings.HasSuffix(req.URL.Host, ".amazonaws.com")
}
