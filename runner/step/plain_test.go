package step

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/runner/attempt"
)

// The vendor's configuration may set the URL at which steps reach the control plane. A URL of another machine without TLS
// gets the launch token only if the customer's own settings allow it.
func TestLaunchTokenNeedsTLSUnlessAllowed(t *testing.T) {
	for name, allowed := range map[string]bool{"not allowed": false, "the customer allows it": true} {
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
				t.Errorf("exit code %d after %d requests", code, sent)
			}
		})
	}
}

// refusing answers every request like a control plane that does not know the token.
type refusing func(*http.Request)

func (f refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return problem(http.StatusUnauthorized, "unauthenticated").response(r), nil
}
