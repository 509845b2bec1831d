package step

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/runner/attempt"
)

// A bound token serves only with a proof of the step's role. Each try has a new proof, because STS refuses an old one, and the
// proof names the step, so that it serves no other.
func TestBoundTokenIsSentWithAProof(t *testing.T) {
	const minted, role = "fll_job_1.1.0.c2lnbmF0dXJl", "arn:aws:iam::111122223333:role/step"
	tied := bound.Token(minted, role)
	for consequence, tt := range map[string]struct {
		token  string
		warm   bool
		proofs string // of the requests, in their order: the number of the proof, or -
	}{
		"each try to start proves the role":                       {tied, false, "1 2 3"},
		"a token that is bound to no role needs no proof":         {minted, false, "- - -"},
		"a warm step proves the role until it is known":           {tied, true, "1 2 -"},
		"a warm step's token that is bound to no role needs none": {minted, true, "- - -"},
	} {
		t.Run(consequence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []string
				made := 0
				a := startable(t, testKey(), &tool{}, roundTripper(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/marker") {
						return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
					}
					var in struct {
						AWSIAM *wire.AWSIAMProof `json:"aws_iam"`
					}
					b, err := io.ReadAll(r.Body)
					if err != nil || json.Unmarshal(b, &in) != nil {
						t.Errorf("the request is %q, %v", b, err)
					}
					proof := "-"
					if in.AWSIAM != nil {
						proof = in.AWSIAM.Signature
					}
					sent = append(sent, proof)
					status := []int{http.StatusServiceUnavailable, http.StatusNoContent, http.StatusConflict}[min(len(sent)-1, 2)]
					if !tt.warm && status == http.StatusNoContent {
						status = http.StatusBadGateway
					}
					header, body := http.Header{}, ""
					if status == http.StatusConflict {
						header, body = http.Header{"Content-Type": {"application/problem+json"}}, `{"type":"`+wire.ProblemType+`warm-step-over","title":"x","status":409,"detail":"x"}`
					}
					return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
				}))
				want := wire.StartStatement("job_1", "step-1")
				if tt.warm {
					a.in.Warm = &attempt.Warm{ID: "wrm_1", Role: component.Provision, Expires: time.Now().Add(5 * time.Minute)}
					want = wire.AwaitStatement("wrm_1", "step-1")
				}
				a.in.Role = &attempt.Role{Region: "eu-central-1"}
				a.ProveRole = func(_ context.Context, region string, c awsiam.Challenge) (awsiam.Proof, error) {
					if region != "eu-central-1" || c.Nonce != bound.Nonce(tied) || c.Audience != "control.example" || string(c.Statement) != string(want) {
						t.Errorf("the proof is for %q, %+v, want %q", region, c, want)
					}
					made++
					return awsiam.Proof{Signature: string(rune('0' + made))}, nil
				}
				var err error
				if tt.warm {
					_, err = a.awaitJob(t.Context(), tt.token)
				} else {
					c, cerr := a.client(tt.token, -1) // which does not repeat a request itself
					if cerr != nil {
						t.Fatal(cerr)
					}
					_, err = a.start(t.Context(), c, tt.token)
				}
				if got := strings.Join(sent, " "); !client.Refused(err) || got != tt.proofs {
					t.Errorf("the requests have the proofs %q, want %q; %v", got, tt.proofs, err)
				}
			})
		})
	}
}
