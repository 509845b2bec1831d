package parts

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/runner/step"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The credentials of a lease are renewed during a job, so each request must be signed with those of its time.
func TestEachRequestIsSignedWithCurrentAccess(t *testing.T) {
	keys := []string{"ASIAFIRST", "ASIASECOND"}
	var signed []string
	look := All().FindMarker(step.Marker{Place: cancelmark.Place{URL: "https://dynamodb.example", Table: "cancels", Key: "k"}, Region: "eu-central-1", Now: time.Now,
		Credentials: func(context.Context) (wire.CloudAccess, error) {
			if len(keys) == 0 {
				return wire.CloudAccess{}, errors.New("the lease is over")
			}
			key := keys[0]
			keys = keys[1:]
			return wire.CloudAccess{AccessKeyID: key, SecretAccessKey: "s", SessionToken: "token of " + key, ExpiresAt: time.Now().Add(time.Hour)}, nil
		},
		HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			signed = append(signed, r.Header.Get("Authorization")+" "+r.Header.Get("X-Amz-Security-Token"))
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"Item":{"attempt":{"S":"k"}}}`)), Request: r}, nil
		})}})
	for i, want := range []string{"ASIAFIRST", "ASIASECOND"} {
		found, err := look(t.Context())
		if err != nil || !found || !strings.Contains(signed[i], "Credential="+want+"/") || !strings.HasSuffix(signed[i], "token of "+want) {
			t.Errorf("request %d: found %t, %v, signed %q", i, found, err, signed)
		}
	}
	if _, err := look(t.Context()); err == nil || !strings.Contains(err.Error(), "the lease is over") || len(signed) != 2 {
		t.Errorf("without access: %v after %d requests", err, len(signed))
	}
}
