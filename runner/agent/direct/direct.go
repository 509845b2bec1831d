// Package direct runs agents beside the control plane: in its process, or, if the control plane is
// serverless, in a service of their own. Each agent serves one runner and starts its steps in the
// customer's cloud or cluster. Like all agents, it enrols, opens sessions and claims jobs through the
// runner API. In addition, it gets the runner's configuration with its secrets. The secrets never
// leave this process.
package direct

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/agent"
)

// Plane is the control plane beside the agents.
type Plane interface {
	// URL returns the control plane's address for the agents.
	URL() string
	// Transport connects to the control plane. If it is nil, agents use the default transport, which
	// trusts the CA certificates of this machine.
	Transport() http.RoundTripper
	// DirectRunners returns the names of the runners to serve, by ID.
	DirectRunners(ctx context.Context) (map[string]string, error)
	// DirectConfiguration returns a runner's configuration with its secrets.
	DirectConfiguration(ctx context.Context, id string) (revision string, runner json.RawMessage, err error)
	// DirectEnrolment makes a token that enrols one agent of the runner.
	DirectEnrolment(ctx context.Context, id string) (token string, err error)
}

// Options of Serve. All but StepURL and Image are required.
type Options struct {
	Data    string // holds one folder for each agent
	Version string
	StepURL string   // control plane's URL for steps, unless a configuration sets it; "": Plane.URL
	Image   string   // image of the runner, for configurations that do not set an image
	Environ []string // environment of this process; it names the agents' file
	// Every is how often the list of runners is read; 0: every two seconds.
	Every time.Duration
	Log   *slog.Logger

	Executors map[string]agent.OpenExecutor
}

const (
	// lookEvery is the default of Options.Every.
	lookEvery = 2 * time.Second
	// againAfter is the pause before an agent that has ended is started again.
	againAfter = 15 * time.Second
)

// server holds the running agents.
type server struct {
	plane Plane
	o     Options

	mu     sync.Mutex
	agents map[string]*hosted // by runner ID
	all    sync.WaitGroup
}

type hosted struct {
	stop  context.CancelFunc
	ended chan struct{}
	at    time.Time // when it ended; zero: it runs
}

// Serve runs an agent for each of the plane's runners, and stops the agents of deleted runners,
// until ctx ends. The steps continue after Serve has returned: the agents of the next Serve on the
// same folder find them.
func Serve(ctx context.Context, p Plane, o Options) {
	s := &server{plane: p, o: o, agents: map[string]*hosted{}}
	tick := time.NewTicker(cmp.Or(o.Every, lookEvery))
	defer tick.Stop()
	defer s.all.Wait()
	for {
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			o.Log.Warn("cannot list the runners to serve from here; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *server) look(ctx context.Context) error {
	want, err := s.plane.DirectRunners(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.agents {
		if _, there := want[id]; there && (h.at.IsZero() || time.Since(h.at) < againAfter) {
			continue
		}
		h.stop()
		delete(s.agents, id)
		if _, there := want[id]; !there {
			s.all.Go(func() { <-h.ended; s.forget(id) })
		}
	}
	for id, name := range want {
		if s.agents[id] != nil {
			continue
		}
		own, stop := context.WithCancel(ctx)
		h := &hosted{stop: stop, ended: make(chan struct{})}
		s.agents[id] = h
		s.all.Go(func() {
			defer close(h.ended)
			defer stop()
			if err := s.run(own, id, name); err != nil && own.Err() == nil {
				s.o.Log.Error("the agent of a runner stopped; it is started again", "runner", name, "error", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			h.at = time.Now()
		})
	}
	return nil
}

// forget removes the folder of a deleted runner's agent.
func (s *server) forget(id string) {
	if err := os.RemoveAll(s.folder(id)); err != nil {
		s.o.Log.Warn("cannot remove the folder of a deleted runner; remove it manually", "folder", s.folder(id), "error", err)
	}
}

func (s *server) folder(id string) string { return filepath.Join(s.o.Data, id) }

func (s *server) run(ctx context.Context, id, name string) error {
	token, err := s.plane.DirectEnrolment(ctx, id)
	if err != nil {
		return err
	}
	if err := config.Replaced(s.o.Environ); err != nil {
		return err
	}
	cfg := config.Runner{URL: s.plane.URL(), Data: s.folder(id), EnrolmentToken: token, ShareLog: true}
	cfg.CAFile = s.value("FAIRLEAD_CA_FILE")
	cfg.AllowPlainHTTP, _ = strconv.ParseBool(s.value("FAIRLEAD_ALLOW_PLAIN_HTTP")) // an invalid value allows nothing
	log := s.o.Log.With("direct", name)
	err = agent.Run(ctx, cfg, log, agent.Options{Version: s.o.Version, Transport: s.plane.Transport(), Executors: s.o.Executors, File: s.file,
		StepCommand: []string{os.DevNull}, // its steps run elsewhere
		Direct: func(ctx context.Context) (string, json.RawMessage, error) {
			return s.plane.DirectConfiguration(ctx, id)
		},
		LeaveSteps: true})
	if err == nil && ctx.Err() == nil {
		err = errors.New("the agent ended unexpectedly")
	}
	return err
}

// value returns a variable of the control plane's environment, "" if it is not set.
func (s *server) value(name string) string { return env.ToMap(s.o.Environ)[name] }

// file returns the control plane's agent file for runners of a kind. The base is the control plane's
// own file if that file uses the same executor. The control plane's options overlay the base.
func (s *server) file(k runnerspec.Kind) (runnerspec.Configuration, error) {
	data, err := json.Marshal(map[string]any{"type": k, "endpoint": s.o.StepURL, "job": map[string]any{"image": s.o.Image}})
	if err != nil {
		return nil, err
	}
	own, err := runnerspec.DecodeRunner(data)
	if err != nil {
		return nil, err
	}
	file, err := agent.ReadFile(s.value("FAIRLEAD_AGENT_CONFIG"))
	if err == nil && len(file.Secrets) > 0 {
		// The customer gives secrets, and this agent is the vendor's.
		return nil, errors.New("FAIRLEAD_AGENT_CONFIG: an agent next to the control plane gives no secrets to jobs: remove secrets from the file, and set job.secrets in the runner's configuration")
	}
	if err == nil && file.Policy != "" {
		return nil, errors.New("FAIRLEAD_AGENT_CONFIG: an agent next to the control plane enforces no policy of a customer: remove policy from the file. The agent in the customer's account enforces it")
	}
	if err != nil || file.Runner.Kind().Executor() != k.Executor() {
		return own, err
	}
	return runnerspec.Overlay(file.Runner, own)
}
