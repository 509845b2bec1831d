package step

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/plugin"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// tool is a plugin that notes that it was started.
type tool struct{ started bool }

func (*tool) Operations() []string { return []string{"apply"} }

func (p *tool) Run(context.Context, plugin.Spec, plugin.Env) (plugin.Result, error) {
	p.started = true
	return plugin.Result{}, nil
}

// TestToolIsStartedThoughTheAnswerCameWhenTheLeaseWasGone: the answer to the
// start of an apply took longer than the lease. The job had been given up, a new
// plan been made and approved, and then the first step had its answer, took it
// for fresh, and began to change what the second was changing.
func TestToolIsStartedThoughTheAnswerCameWhenTheLeaseWasGone(t *testing.T) {
	const renew = 15 * time.Second
	for _, tt := range []struct {
		name    string
		answer  time.Duration // until the start is answered
		beat    int           // what a renewal is answered; 0: nothing; StatusConflict: stale-epoch
		started bool
		code    int
		reason  string // of the report; "": there is none, or it is of success
	}{
		{"the answer comes at once, nothing more is asked", 10 * time.Millisecond, http.StatusConflict, true, attempt.ExitFinished, ""},
		{"it is late, and the lease is still there", 20 * time.Second, http.StatusOK, true, attempt.ExitFinished, ""},
		{"it is late, and the lease is somebody else's", 54 * time.Second, http.StatusConflict, false, attempt.ExitStale, ""},
		{"it is some seconds late, and the control plane's clock was set forward", 10 * time.Second, http.StatusConflict, false, attempt.ExitStale, ""},
		{"it is late, and then nobody answers", 54 * time.Second, 0, false, attempt.ExitFinished, "lease-expired"},
		{"it is late, and then a firewall answers", 54 * time.Second, http.StatusForbidden, false, attempt.ExitFinished, "lease-expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
				envelope, err := events.NewSigner(key).Sign(t.Context(), events.JobSpec{Runner: "run_1", Job: "job_1", Epoch: 1, Plugin: "tool", Operation: "apply",
					IssuedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
				if err != nil {
					t.Fatal(err)
				}
				p := &tool{}
				var report wire.FinishRequest
				met := 0 // starts
				transport := roundTripper(func(r *http.Request) (*http.Response, error) {
					status, out := http.StatusOK, any(map[string]any{})
					switch {
					case strings.HasSuffix(r.URL.Path, "/start"):
						if met++; met == 1 {
							return others()[0].response(r), nil // an ingress without its backend
						}
						<-time.After(tt.answer)
						out = wire.Started{Envelope: envelope, LeaseToken: "lease", RenewSeconds: int(renew / time.Second)}
					case strings.HasSuffix(r.URL.Path, "/heartbeat"):
						if tt.beat == 0 {
							return nil, errors.New("connection reset by peer")
						}
						switch status = tt.beat; status {
						case http.StatusOK:
							out = wire.Lease{RenewSeconds: int(renew / time.Second)}
						case http.StatusConflict:
							return problem(status, "stale-epoch").response(r), nil
						default:
							return others()[1].response(r), nil
						}
					case strings.HasSuffix(r.URL.Path, "/finish"):
						if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
							return nil, err
						}
					}
					b, err := json.Marshal(out)
					return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
				})
				dir := attempt.Dir(t.TempDir())
				a := &execution{dir: dir, in: attempt.Input{URL: "https://control.example", Runner: "run_1", Job: "job_1", Epoch: 1, Plugin: "tool", Operation: "apply", Data: t.TempDir(),
					Keys: []wire.VerificationKey{{ID: events.KeyID(key.Public().(ed25519.PublicKey)), PublicKey: key.Public().(ed25519.PublicKey)}}},
					Env: Env{Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: transport,
						Plugins: plugin.Registry{"tool": p}, NewID: func() string { return "step-1" }, Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }}}
				if code := a.run(t.Context(), "launch"); code != tt.code {
					t.Errorf("the step ends with %d, want %d", code, tt.code)
				}
				if p.started != tt.started {
					t.Errorf("the tool was started: %v, want %v", p.started, tt.started)
				}
				if report.Reason != tt.reason {
					t.Errorf("reported %+v, want reason %q", report, tt.reason)
				}
			})
		})
	}
}
