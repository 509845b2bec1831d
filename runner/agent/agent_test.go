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
	"github.com/fairlead/fairlead/test/plane"
)

// TestMain lets the test binary be the step.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "step" {
		os.Exit(runstep.Main(context.Background(), os.Args[2:], runstep.Options{Stderr: os.Stderr, Environ: os.Environ()}))
	}
	os.Exit(m.Run())
}

func settings(t *testing.T, s *plane.Plane) config.Runner {
	return config.Runner{URL: s.URL(), Data: filepath.Join(t.TempDir(), "runner"), EnrolmentToken: s.EnrolmentToken()}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// An agent within another program: it runs jobs, and leaves no goroutine.
func TestRunWithinAProgram(t *testing.T) {
	s := plane.New(t, plane.Options{})
	before := goleak.IgnoreCurrent()
	cfg := settings(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, quiet(), Options{Environ: os.Environ()}) }()
	j := s.UntilFinished(s.Queue(events.JobSpec{Plugin: "check", Operation: "check", Timeout: 60, Grace: 1}))
	if j.Finish.Outcome != "succeeded" {
		t.Errorf("finished as %+v", *j.Finish)
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

func TestEnrolmentMayBeRepeatedAfterACrash(t *testing.T) {
	s := plane.New(t, plane.Options{})
	cfg := settings(t, s)
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := loadIdentity(t.Context(), cfg, Options{}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	// Crashed between the control plane's answer and our note of it.
	if err := os.Remove(filepath.Join(cfg.Data, identityFile)); err != nil {
		t.Fatal(err)
	}
	again, err := loadIdentity(t.Context(), cfg, Options{}, quiet())
	if err != nil || again.RunnerID != first.RunnerID || !again.key.Equal(first.key) {
		t.Errorf("enrolled again as %s: %v", again.RunnerID, err)
	}
	// The token is spent for everybody else.
	thief := cfg
	thief.Data = t.TempDir()
	if _, err := loadIdentity(t.Context(), thief, Options{}, quiet()); err == nil || !strings.Contains(err.Error(), "enrolment token") {
		t.Errorf("a second key enrolled with the same token: %v", err)
	}
}

// foreign answers the first requests as a proxy in the customer's network does.
type foreign struct{ left atomic.Int32 }

func (f *foreign) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.left.Add(-1) < 0 {
		return http.DefaultTransport.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<h1>403</h1>")), Request: r}, nil
}

// A page of somebody on the way is no word about the enrolment token: the agent
// ended for it, and a machine that was set up before its network stayed without.
func TestAProxysPageEndedAnEnrolment(t *testing.T) {
	s := plane.New(t, plane.Options{})
	cfg := settings(t, s)
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	way := &foreign{}
	way.left.Store(2)
	id, err := loadIdentity(t.Context(), cfg, Options{Transport: way, Random: func() float64 { return 0 }}, quiet())
	if err != nil || id.RunnerID == "" {
		t.Errorf("enrolled as %q: %v", id.RunnerID, err)
	}
}

func TestRunCannotBegin(t *testing.T) {
	s := plane.New(t, plane.Options{})
	for name, tc := range map[string]struct {
		change func(*config.Runner)
		says   string
	}{
		"no token":                   {func(c *config.Runner) { c.EnrolmentToken = "" }, "FAIRLEAD_ENROLMENT_TOKEN"},
		"no URL":                     {func(c *config.Runner) { c.URL = "" }, "FAIRLEAD_URL"},
		"an URL that is none":        {func(c *config.Runner) { c.URL = "control.example" }, "https://"},
		"a token that is not valid":  {func(c *config.Runner) { c.EnrolmentToken = "fle_wrong" }, "enrolment token"},
		"a token file that is empty": {func(c *config.Runner) { c.EnrolmentToken, c.EnrolmentTokenFile = "", os.DevNull }, "is empty"},
		"a data folder that cannot be made": {func(c *config.Runner) {
			c.Data = filepath.Join(os.DevNull, "x")
		}, "data folder"},
		"an identity that is damaged": {func(c *config.Runner) {
			os.MkdirAll(c.Data, 0o700)
			os.WriteFile(filepath.Join(c.Data, identityFile), []byte("{"), 0o600)
		}, "is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := settings(t, s)
			tc.change(&cfg)
			err := Run(t.Context(), cfg, quiet(), Options{})
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want something about %q", err, tc.says)
			}
		})
	}
}

func TestJobIdentifierThatIsAPathIsRefused(t *testing.T) {
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
		t.Errorf("made %v", left)
	}
	if len(a.steps) != 0 {
		t.Error("it still counts as running")
	}
}

func claimOf(job string) wire.Claim {
	return wire.Claim{Job: job, Epoch: 1, Plugin: "check", Operation: "check", LaunchToken: "fll_x"}
}
