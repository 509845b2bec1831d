package agent

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	runstep "github.com/fairlead/fairlead/runner/step"
	"github.com/fairlead/fairlead/runner/step/parts"
	"github.com/fairlead/fairlead/test/plane"
)

// TestMain runs a step if the first argument is "step": the agents under test start this binary as their step program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "step" {
		os.Exit(runstep.Main(context.Background(), os.Args[2:], runstep.Options{Stderr: os.Stderr, Environ: os.Environ(), Parts: parts.All()}))
	}
	os.Exit(m.Run())
}

func settings(t *testing.T, s *plane.Plane) config.Runner {
	return config.Runner{URL: s.URL(), Data: filepath.Join(t.TempDir(), "runner"), EnrolmentToken: s.EnrolmentToken()}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// The agent runs inside another program, such as this test. Run executes jobs and leaves no goroutine.
func TestRunLeavesNoGoroutine(t *testing.T) {
	s := plane.New(t, plane.Options{})
	before := goleak.IgnoreCurrent()
	cfg := settings(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, quiet(), Options{Environ: os.Environ()}) }()
	j := s.UntilFinished(s.Queue(events.JobSpec{Plugin: "check", Operation: "check", Timeout: 60, Grace: 1}))
	if j.Finish.Outcome != "succeeded" {
		t.Errorf("the job finished as %+v, want succeeded", *j.Finish)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.CloseClientConnections()
	goleak.VerifyNone(t, before,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"))
}

func TestEnrolmentCanBeRepeatedAfterACrash(t *testing.T) {
	s := plane.New(t, plane.Options{})
	cfg := settings(t, s)
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := loadIdentity(t.Context(), cfg, Options{}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	// The agent crashed after the control plane's response and before it wrote the identity.
	if err := os.Remove(filepath.Join(cfg.Data, identityFile)); err != nil {
		t.Fatal(err)
	}
	again, err := loadIdentity(t.Context(), cfg, Options{}, quiet())
	if err != nil || again.RunnerID != first.RunnerID || !again.key.Equal(first.key) {
		t.Errorf("the second enrolment returned runner %s, want %s with the same key: %v", again.RunnerID, first.RunnerID, err)
	}
	// Another key cannot use the token.
	thief := cfg
	thief.Data = t.TempDir()
	if _, err := loadIdentity(t.Context(), thief, Options{}, quiet()); err == nil || !strings.Contains(err.Error(), "enrolment token") {
		t.Errorf("a second key enrolled with the same token: %v", err)
	}
}

// proxy answers requests with an HTML error page, like a proxy in the customer's network. The field left is the number of
// requests that it still answers in this way. It forwards all later requests.
type proxy struct{ left atomic.Int32 }

// RoundTrip implements http.RoundTripper.
func (f *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.left.Add(-1) < 0 {
		return http.DefaultTransport.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<h1>403</h1>")), Request: r}, nil
}

// A proxy's error page does not mean that the control plane refused the enrolment token, so the agent retries. Otherwise
// a machine that is set up before its network works would never get an agent.
func TestEnrolmentRetriesAfterAProxysErrorPage(t *testing.T) {
	s := plane.New(t, plane.Options{})
	cfg := settings(t, s)
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	via := &proxy{}
	via.left.Store(2)
	id, err := loadIdentity(t.Context(), cfg, Options{Transport: via, Random: func() float64 { return 0 }}, quiet())
	if err != nil || id.RunnerID == "" {
		t.Errorf("enrolment through the proxy returned runner %q: %v", id.RunnerID, err)
	}
}

func TestRunNamesTheInvalidSetting(t *testing.T) {
	s := plane.New(t, plane.Options{})
	for name, tc := range map[string]struct {
		change func(*config.Runner)
		want   string // part of the error
	}{
		"no token":               {func(c *config.Runner) { c.EnrolmentToken = "" }, "FAIRLEAD_ENROLMENT_TOKEN"},
		"no URL":                 {func(c *config.Runner) { c.URL = "" }, "FAIRLEAD_URL"},
		"a URL without a scheme": {func(c *config.Runner) { c.URL = "control.example" }, "https://"},
		"an invalid token":       {func(c *config.Runner) { c.EnrolmentToken = "fle_wrong" }, "enrolment token"},
		"an empty token file":    {func(c *config.Runner) { c.EnrolmentToken, c.EnrolmentTokenFile = "", os.DevNull }, "is empty"},
		"a data folder that cannot be created": {func(c *config.Runner) {
			c.Data = filepath.Join(os.DevNull, "x")
		}, "data folder"},
		"a damaged identity file": {func(c *config.Runner) {
			os.MkdirAll(c.Data, 0o700)
			os.WriteFile(filepath.Join(c.Data, identityFile), []byte("{"), 0o600)
		}, "is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := settings(t, s)
			tc.change(&cfg)
			err := Run(t.Context(), cfg, quiet(), Options{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Run returned %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestJobIDThatIsAPathIsRefused(t *testing.T) {
	s := plane.New(t, plane.Options{})
	cfg := settings(t, s)
	a, err := open(t.Context(), cfg, Options{StepCommand: []string{"/bin/false"}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer a.lock.Close()
	c := claimOf("../../../etc/x")
	a.reserve(c)
	a.launch(t.Context(), c)
	if left, _ := filepath.Glob(filepath.Join(cfg.Data, "steps", "*")); len(left) != 0 {
		t.Errorf("the agent made the folders %v for a refused claim", left)
	}
	if len(a.steps) != 0 {
		t.Error("the refused step still counts as running")
	}
}

func claimOf(job string) wire.Claim {
	return wire.Claim{Job: job, Epoch: 1, Plugin: "check", Operation: "check", LaunchToken: "fll_x"}
}
