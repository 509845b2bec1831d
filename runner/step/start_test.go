package step

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
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

// tool is a plugin that records that it was started, and then calls run, if there is one.
type tool struct {
	started bool
	run     func()
}

func (*tool) Operations() []string { return []string{"apply"} }

func (p *tool) Run(context.Context, plugin.Spec, plugin.Env) (plugin.Result, error) {
	p.started = true
	if p.run != nil {
		p.run()
	}
	return plugin.Result{}, nil
}

// testKey returns the key that signs specs.
func testKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

// signedSpec returns a spec for startable's job, and the key of its signature.
func signedSpec(t *testing.T) (ed25519.PrivateKey, []byte) {
	t.Helper()
	key := testKey()
	envelope, err := events.NewSigner(key).Sign(t.Context(), events.JobSpec{Runner: "run_1", Job: "job_1", Epoch: 1, Plugin: "tool", Operation: "apply",
		IssuedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return key, envelope
}

// startable returns a step whose launch token was not exchanged yet. Its n-th identifier is step-n.
func startable(t *testing.T, key ed25519.PrivateKey, p plugin.Plugin, transport http.RoundTripper) *execution {
	ids := 0
	return &execution{dir: attempt.Dir(t.TempDir()), in: attempt.Input{URL: "https://control.example", Runner: "run_1", Job: "job_1", Epoch: 1, Plugin: "tool", Operation: "apply", Data: t.TempDir(),
		Keys: []wire.VerificationKey{{ID: events.KeyID(key.Public().(ed25519.PublicKey)), PublicKey: key.Public().(ed25519.PublicKey)}}},
		Env: Env{Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: transport,
			Plugins: plugin.Registry{"tool": p}, NewID: func() string { ids++; return fmt.Sprintf("step-%d", ids) }, Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }}}
}

// A launch token is in the environment of the step's container, where some calls to a platform show it. With the token and
// the identifier of its step, a tool could repeat the exchange and get the lease of its job.
func TestToolFindsNoStepID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, envelope := signedSpec(t)
		var ids []string
		var left []string // files of the step that contain the identifier while the tool runs
		p := &tool{}
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			out := any(map[string]any{})
			if strings.HasSuffix(r.URL.Path, "/start") {
				var in wire.StartRequest
				if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
					return nil, err
				}
				if ids = append(ids, in.StepID); len(ids) == 1 {
					return nil, errors.New("connection reset by peer") // the control plane may have answered
				}
				out = wire.Started{Envelope: envelope, LeaseToken: "lease", RenewSeconds: 15}
			}
			b, err := json.Marshal(out)
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
		})
		a := startable(t, key, p, transport)
		p.run = func() {
			for _, dir := range []string{string(a.dir), a.in.Data} {
				err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
					if err != nil || e.IsDir() {
						return err
					}
					b, err := os.ReadFile(path)
					if bytes.Contains(b, []byte(ids[0])) {
						left = append(left, path)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		}
		if code := a.run(t.Context(), "launch"); code != attempt.ExitFinished || !p.started {
			t.Fatalf("exit code %d, tool started: %v", code, p.started)
		}
		if len(ids) != 2 || ids[0] != ids[1] {
			t.Errorf("the step exchanges its token with the identifiers %q; want the same one twice", ids)
		}
		if len(left) > 0 {
			t.Errorf("the identifier is in %q", left)
		}
	})
}

// A step must not start its tool when the start's answer comes after the lease has run out. By then another attempt may
// have a new approved plan, and both would change the same resources.
func TestNoToolStartsAfterTheLeaseIsLost(t *testing.T) {
	const renew = 15 * time.Second
	for _, tt := range []struct {
		name    string
		answer  time.Duration // time until the answer to the start request
		beat    int           // the status of a renewal's answer; 0: no answer; StatusConflict: stale-epoch
		started bool
		code    int
		reason  string // of the report; "": no report, or a success
	}{
		{"a prompt answer needs no renewal", 10 * time.Millisecond, http.StatusConflict, true, attempt.ExitFinished, ""},
		{"a late answer, the lease is still owned", 20 * time.Second, http.StatusOK, true, attempt.ExitFinished, ""},
		{"a late answer, another attempt owns the lease", 54 * time.Second, http.StatusConflict, false, attempt.ExitStale, ""},
		{"seconds late, the control plane's clock was set forward", 10 * time.Second, http.StatusConflict, false, attempt.ExitStale, ""},
		{"a late answer, then no answer to the renewal", 54 * time.Second, 0, false, attempt.ExitFinished, "lease-expired"},
		{"a late answer, then a firewall answers", 54 * time.Second, http.StatusForbidden, false, attempt.ExitFinished, "lease-expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key, envelope := signedSpec(t)
				p := &tool{}
				var report wire.FinishRequest
				starts := 0
				transport := roundTripper(func(r *http.Request) (*http.Response, error) {
					status, out := http.StatusOK, any(map[string]any{})
					switch {
					case strings.HasSuffix(r.URL.Path, "/start"):
						if starts++; starts == 1 {
							return foreignAnswers()[0].response(r), nil // an ingress without a backend
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
							return foreignAnswers()[1].response(r), nil
						}
					case strings.HasSuffix(r.URL.Path, "/finish"):
						if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
							return nil, err
						}
					}
					b, err := json.Marshal(out)
					return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
				})
				a := startable(t, key, p, transport)
				if code := a.run(t.Context(), "launch"); code != tt.code {
					t.Errorf("exit code %d, want %d", code, tt.code)
				}
				if p.started != tt.started {
					t.Errorf("tool started: %v, want %v", p.started, tt.started)
				}
				if report.Reason != tt.reason {
					t.Errorf("reported %+v, want reason %q", report, tt.reason)
				}
			})
		})
	}
}
