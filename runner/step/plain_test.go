package step

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/runner/attempt"
)

// TestAStepTradedItsLaunchTokenInClear: the vendor's configuration may say at which
// URL steps reach the control plane. One without TLS on another machine gets the
// launch token only where the customer's own settings allow it.
func TestAStepTradedItsLaunchTokenInClear(t *testing.T) {
	for name, allowed := range map[string]bool{"nobody has allowed it": false, "the customer has allowed it": true} {
		t.Run(name, func(t *testing.T) {
			in := attempt.Input{URL: "http://control.example", PlainHTTP: allowed, Job: "job_1", Epoch: 1, Data: t.TempDir()}
			dir, err := attempt.Create(t.TempDir()+"/job_1-1", in)
			if err != nil {
				t.Fatal(err)
			}
			sent := 0
			code := Run(t.Context(), dir, in, "fll_secret", Env{Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 },
				NewID:     func() string { return "step-1234" },
				Transport: refusing(func(*http.Request) { sent++ })})
			if code == attempt.ExitFinished || (sent > 0) != allowed {
				t.Errorf("the step ends with %d, after %d requests", code, sent)
			}
		})
	}
}

// refusing answers each request as a control plane that does not know the token.
type refusing func(*http.Request)

func (f refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return problem(http.StatusUnauthorized, "unauthenticated").response(r), nil
}
