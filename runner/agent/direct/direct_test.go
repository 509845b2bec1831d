package direct_test

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/clusters"
	"github.com/fairlead/fairlead/runner/agent/direct"
	"github.com/fairlead/fairlead/runner/agent/direct/clouds"
	"github.com/fairlead/fairlead/tools/testserver"
)

// plane is a real control plane, with agents next to it in the same process.
type plane struct {
	t        *testing.T
	server   *local.Server
	c        *client.Client
	data     string
	environ  []string // of the agents next to it
	identity clouds.Identity
	ca       string // file with the certificate that signed the control plane's; "": it serves without TLS
	stop     func() // stops the agents next to it
}

func newPlane(t *testing.T, environ ...string) *plane {
	t.Helper()
	return newPlaneOf(t, clouds.Identity{}, environ...)
}

// newPlaneOf is newPlane with the control plane's identity in the clouds.
func newPlaneOf(t *testing.T, identity clouds.Identity, environ ...string) *plane {
	t.Helper()
	p := &plane{t: t, data: t.TempDir(), environ: environ, identity: identity}
	p.start(local.Options{}, nil)
	return p
}

// start starts the control plane, a client that connects through transport, and the agents next to the control plane.
func (p *plane) start(o local.Options, transport http.RoundTripper) {
	t := p.t
	t.Helper()
	var err error
	o.Data, o.Listen = p.data, "127.0.0.1:0"
	if p.server, err = local.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.server.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	token, err := os.ReadFile(p.server.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	if p.c, err = client.New(p.server.URL(), strings.TrimSpace(string(token)), client.Options{Retries: -1, HTTP: &http.Client{Transport: transport}}); err != nil {
		t.Fatal(err)
	}
	p.serve()
}

// serve runs the agents next to the control plane until stop is called.
func (p *plane) serve() { p.stop = p.serveIn("direct", "") }

// serveIn is serve with a folder of the control plane's data and the URL for steps. It returns stop.
func (p *plane) serveIn(folder, stepURL string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		direct.Serve(ctx, p.server, direct.Options{Data: filepath.Join(p.data, folder), StepURL: stepURL, Environ: p.environ, Log: logger(p.t), Executors: clouds.Executors(p.identity)})
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	p.t.Cleanup(stop)
	return stop
}

// file returns the variable with the agent's file. The agents next to the control plane and the installed agents use it.
func file(kind, job string) string {
	return "FAIRLEAD_AGENT_CONFIG={runner_configuration: {type: " + kind + ", job: {" + job + "}}}"
}

// install runs an installed agent of the runner. An installed agent runs where its steps run.
func (p *plane) install(name string) {
	p.t.Helper()
	e, err := p.c.CreateEnrolment(p.t.Context(), name)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, config.Runner{URL: p.server.URL(), Data: filepath.Join(p.t.TempDir(), "runner"), EnrolmentToken: e.Token, CAFile: p.ca, Config: env.ToMap(p.environ)["FAIRLEAD_AGENT_CONFIG"]}, logger(p.t),
			agent.Options{Executors: clusters.Executors()})
	}()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
}

func (p *plane) make(name, file string) {
	p.t.Helper()
	if _, err := p.c.CreateRunner(p.t.Context(), wire.CreateRunnerRequest{Name: name, RunnerConfigurationInput: wire.RunnerConfigurationInput{Text: file}}); err != nil {
		p.t.Fatal(err)
	}
}

// ends runs a check job on the runner and returns the ended job.
func (p *plane) ends(runner string) wire.Job {
	p.t.Helper()
	j, err := p.c.CheckRunner(p.t.Context(), runner)
	if err != nil {
		p.t.Fatal(err)
	}
	testserver.Until(p.t, "the end of the job on "+runner, func() bool {
		j, err = p.c.GetJob(p.t.Context(), j.ID)
		return err == nil && (j.State == "succeeded" || j.State == "failed" || j.State == "lost")
	})
	return j
}

// same asserts that a check job ends on both runners with the same result, with that state and with message in its message.
func (p *plane) same(state, message string) {
	p.t.Helper()
	near, far := p.ends("near"), p.ends("far")
	for _, j := range []wire.Job{near, far} {
		if j.State != state || !strings.Contains(j.Message, message) {
			p.t.Errorf("on %s the job is %s, %q: %q, want %s with %q", j.Runner, j.State, j.Reason, j.Message, state, message)
		}
	}
	if near.Reason != far.Reason || near.Epoch != far.Epoch || len(near.Deaths) != len(far.Deaths) || len(near.Log) != len(far.Log) {
		p.t.Errorf("with the agent next to the control plane the job ended as\n%+v\nwith the installed agent as\n%+v", near, far)
	}
}

// isUnhealthy waits until the runner's agent reports that it is unhealthy, with reason in the text.
func (p *plane) isUnhealthy(runner, reason string) {
	p.t.Helper()
	testserver.Until(p.t, "the agent's report that "+reason, func() bool {
		r, err := p.c.GetRunner(p.t.Context(), runner)
		return err == nil && slices.ContainsFunc(r.Sessions, func(s wire.RunnerSession) bool { return strings.Contains(s.Unhealthy, reason) })
	})
}

// isOnNoDisk asserts that the secret is in no file of the agents next to the control plane, not in the table, and not in
// the API's runner.
func (p *plane) isOnNoDisk(secret string) {
	p.t.Helper()
	err := filepath.WalkDir(filepath.Join(p.data, "direct"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), secret) {
			p.t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
	table, err := os.ReadFile(filepath.Join(p.data, "table.db"))
	if err != nil || strings.Contains(string(table), secret) {
		p.t.Errorf("the table holds the secret in plain text, or cannot be read: %v", err)
	}
	r, err := p.c.GetRunner(p.t.Context(), "near")
	if err != nil || strings.Contains(string(r.Config), secret) {
		p.t.Errorf("the API returns the secret, or fails with %v: %s", err, r.Config)
	}
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}
