package step

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/cancelwatch"
	"github.com/fairlead/fairlead/runner/plugin"
)

// slowTool works until it is interrupted, and then needs some time to save its state.
type slowTool struct {
	saves       time.Duration
	interrupted time.Time
	saved       bool
}

func (*slowTool) Operations() []string { return []string{"apply"} }

func (p *slowTool) Run(ctx context.Context, spec plugin.Spec, _ plugin.Env) (plugin.Result, error) {
	<-ctx.Done()
	p.interrupted = time.Now()
	<-time.After(min(p.saves, spec.Grace.Duration())) // a plugin kills its tool after the grace
	p.saved = p.saves <= spec.Grace.Duration()
	return plugin.Result{}, plugin.Errorf("tool-failed", "interrupted")
}

// billedPlane is a control plane that answers each renewal at once, with the table of cancel
// markers beside it.
type billedPlane struct {
	mu       sync.Mutex
	envelope []byte
	cancels  time.Time // when the job is canceled
	marked   time.Time // when the marker is written; zero: never
	broken   bool      // DynamoDB cannot be reached
	looks    int
	renewals []time.Time
	report   *wire.FinishRequest
}

func (b *billedPlane) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.URL.Host == "dynamodb.example":
		b.looks++
		if b.broken {
			return nil, errors.New("no route to host")
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(string(body), `"ins_1/job_1/1"`) || r.Header.Get("Authorization") == "" {
			return cannedAnswer{status: 400, body: `{"__type":"AccessDeniedException"}`}.response(r), nil
		}
		if b.marked.IsZero() || time.Now().Before(b.marked) {
			return okAnswer(r, map[string]any{})
		}
		return okAnswer(r, map[string]any{"Item": map[string]any{"attempt": map[string]string{"S": "ins_1/job_1/1"}}})
	case strings.HasSuffix(r.URL.Path, "/start"):
		return okAnswer(r, wire.Started{Envelope: b.envelope, LeaseToken: "lease", RenewSeconds: 15,
			Log: &wire.LogAccess{CloudAccess: wire.CloudAccess{Region: "eu-central-1", AccessKeyID: "a", SecretAccessKey: "s", SessionToken: "t",
				ExpiresAt: time.Now().Add(time.Hour)}, Group: "g"},
			Cancel: &wire.CancelMarker{URL: "https://dynamodb.example", Table: "cancels", Key: "ins_1/job_1/1"}})
	case strings.HasSuffix(r.URL.Path, "/heartbeat"):
		b.renewals = append(b.renewals, time.Now())
		return okAnswer(r, wire.Lease{RenewSeconds: 15, Cancel: !time.Now().Before(b.cancels), ExpiresAt: time.Now().Add(45 * time.Second)})
	case strings.HasSuffix(r.URL.Path, "/finish"):
		b.report = &wire.FinishRequest{}
		return cannedAnswer{status: http.StatusNoContent}.response(r), json.NewDecoder(r.Body).Decode(b.report)
	}
	return nil, errors.New("no route") // CloudWatch Logs: the log takes the other way
}

// signedLook looks for a marker as package parts does.
func signedLook(m Marker) func(context.Context) (bool, error) {
	w := &cancelwatch.Marker{Place: m.Place, Region: m.Region, HTTP: m.HTTP, Now: m.Now, Credentials: aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		a, err := m.Credentials(ctx)
		return aws.Credentials{AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken}, err
	})}
	return w.Found
}

// stackGrace returns the grace of the jobs of a customer's stack whose runner has the defaults.
func stackGrace(t *testing.T) time.Duration {
	r := runnerspec.Parse("runner.yaml", []byte("runner_configuration: {type: local}\nstate_storage_configuration: {type: http}\n"))
	if len(r.Problems) > 0 {
		t.Fatal(r.Problems.Err())
	}
	if problems := r.Spec.ForStack(); len(problems) > 0 {
		t.Fatal(problems.Err())
	}
	return r.Spec.StopGrace()
}

// On AWS a renewal's answer does not wait for a cancellation. The step finds the marker at its next
// look, renews its lease at once, and only the answer to the renewal cancels the job.
func TestMarkerBringsCancelWithin3Seconds(t *testing.T) {
	const hour = time.Hour
	for _, tt := range []struct {
		name   string
		cancel time.Duration // after the start
		mark   time.Duration // after the start; 0: never
		broken bool
		saves  time.Duration
		within time.Duration // from the cancellation to the interrupt
		looks  int           // at most
	}{
		{"right after a renewal", 31 * time.Second, 31*time.Second + 100*time.Millisecond, false, 0, 3 * time.Second, 24},
		{"right after a look", 40*time.Second + time.Millisecond, 40*time.Second + 300*time.Millisecond, false, 0, 3 * time.Second, 30},
		{"a tool that needs five minutes to save is not killed", 31 * time.Second, 31 * time.Second, false, 5 * time.Minute, 3 * time.Second, 24},
		{"a lost marker costs latency", 31 * time.Second, 0, false, 0, 15 * time.Second, 32},
		{"a marker of no cancellation does not cancel", 10 * time.Minute, 20 * time.Second, false, 0, 15 * time.Second, 15},
		{"a network that blocks DynamoDB costs latency", 5*time.Minute + time.Second, 5 * time.Minute, true, 0, 15 * time.Second, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
				envelope, err := events.NewSigner(key).Sign(t.Context(), events.JobSpec{Runner: "run_1", Job: "job_1", Epoch: 1, Plugin: "tool", Operation: "apply",
					Grace: events.Seconds(stackGrace(t) / time.Second), IssuedAt: time.Now(), ExpiresAt: time.Now().Add(hour)})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				b := &billedPlane{envelope: envelope, cancels: began.Add(tt.cancel), broken: tt.broken}
				if tt.mark > 0 {
					b.marked = began.Add(tt.mark)
				}
				p := &slowTool{saves: tt.saves}
				a := &execution{dir: attempt.Dir(t.TempDir()), in: attempt.Input{URL: "https://control.example", Runner: "run_1", Job: "job_1", Epoch: 1, Plugin: "tool", Operation: "apply", Data: t.TempDir(),
					Keys: []wire.VerificationKey{{ID: events.KeyID(key.Public().(ed25519.PublicKey)), PublicKey: key.Public().(ed25519.PublicKey)}}},
					Env: Env{Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: b,
						Parts: Parts{FindMarker: signedLook}, Plugins: plugin.Registry{"tool": p}, NewID: func() string { return "step-1" }, Signal: func() { t.Error("the tool was killed") }, Kill: func(context.Context) (int, error) { return 0, nil }}}
				if code := a.run(t.Context(), "launch"); code != attempt.ExitFinished {
					t.Errorf("exit code %d", code)
				}
				if late := p.interrupted.Sub(b.cancels); late < 0 || late > tt.within {
					t.Errorf("interrupted %s after the cancellation, want at most %s", late, tt.within)
				}
				if !p.saved || b.report == nil || b.report.Outcome != "canceled" {
					t.Errorf("saved: %t, reported %+v", p.saved, b.report)
				}
				last := began
				for _, at := range append(b.renewals, time.Now()) {
					if at.Sub(last) > 20*time.Second {
						t.Errorf("the lease was not renewed between %s and %s", last.Sub(began), at.Sub(began))
					}
					last = at
				}
				if b.looks > tt.looks {
					t.Errorf("%d looks for the marker, want at most %d", b.looks, tt.looks)
				}
			})
		})
	}
}

// A job without direct access to AWS has no marker.
func TestNoMarkerWithoutCredentials(t *testing.T) {
	a := &execution{Env: Env{Log: slog.New(slog.DiscardHandler), Parts: Parts{FindMarker: signedLook}}}
	for _, started := range []wire.Started{{}, {Cancel: &wire.CancelMarker{URL: "https://dynamodb.example", Table: "cancels", Key: "k"}}} {
		if hint := a.watchMarker(t.Context(), started, nil); hint != nil {
			t.Errorf("%+v: the step looks for a marker", started)
		}
	}
}
