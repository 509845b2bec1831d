// Package direct runs agents beside the control plane, one for each runner whose
// jobs run on compute that is reached from there. Each is an agent like any
// other: it enrols, opens sessions and claims jobs by the runner API. What it has
// besides is the runner's configuration with its secrets, which it gets in this
// process alone.
package direct

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/agent"
)

// Plane is the control plane in this process.
type Plane interface {
	// URL is where it answers this machine.
	URL() string
	// Transport reaches it there; nil: by what this machine trusts.
	Transport() http.RoundTripper
	// DirectRunners returns the names of the runners to serve, by identifier.
	DirectRunners(ctx context.Context) (map[string]string, error)
	// DirectConfiguration returns a runner's configuration with its secrets.
	DirectConfiguration(ctx context.Context, id string) (revision string, runner json.RawMessage, err error)
	// DirectEnrolment makes a token that enrols one agent of the runner.
	DirectEnrolment(ctx context.Context, name string) (token string, err error)
}

// Options of Serve. All but StepURL and Image are required.
type Options struct {
	Data    string // folder of the agents' folders
	Version string
	StepURL string   // at which steps reach the control plane, unless a configuration says it; "": its URL
	Image   string   // of the runner, for configurations that name none
	Environ []string // of the control plane's process; an agent gets the settings of executors in it
	Log     *slog.Logger

	Executors map[string]agent.OpenExecutor
}

const (
	// lookEvery is how often the control plane is asked which runners there are.
	lookEvery = 2 * time.Second
	// againAfter is how long an agent that could not begin is left alone.
	againAfter = 15 * time.Second
)

// server is what runs.
type server struct {
	plane Plane
	o     Options

	mu     sync.Mutex
	agents map[string]*hosted // by the runner's identifier
	all    sync.WaitGroup
}

type hosted struct {
	stop  context.CancelFunc
	ended chan struct{}
	at    time.Time // when it ended; zero: it runs
}

// Serve runs an agent for each of the plane's runners, and ends those of runners
// that are no more, until ctx ends. Steps go on then, and are found by the agents
// of the next Serve on the same folder.
func Serve(ctx context.Context, p Plane, o Options) {
	s := &server{plane: p, o: o, agents: map[string]*hosted{}}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	defer s.all.Wait()
	for {
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			o.Log.Warn("which runners are served from here is not known", "error", err)
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
				s.o.Log.Error("a runner is not served", "runner", name, "error", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			h.at = time.Now()
		})
	}
	return nil
}

// forget removes what the agent of a runner that is no more has kept.
func (s *server) forget(id string) {
	if err := os.RemoveAll(s.folder(id)); err != nil {
		s.o.Log.Warn("the folder of a runner that is no more stays", "folder", s.folder(id), "error", err)
	}
}

func (s *server) folder(id string) string { return filepath.Join(s.o.Data, id) }

func (s *server) run(ctx context.Context, id, name string) error {
	token, err := s.plane.DirectEnrolment(ctx, name)
	if err != nil {
		return err
	}
	cfg := config.Runner{URL: s.plane.URL(), Data: s.folder(id), EnrolmentToken: token, StepURL: s.o.StepURL, ShareLog: true}
	cfg.CAFile, cfg.AllowPlainHTTP = s.way()
	log := s.o.Log.With("direct", name)
	err = agent.Run(ctx, cfg, log, agent.Options{Version: s.o.Version, Transport: s.plane.Transport(), Environ: s.environ(), Executors: s.o.Executors,
		StepCommand: []string{os.DevNull}, // its steps are elsewhere
		Direct: func(ctx context.Context) (string, json.RawMessage, error) {
			return s.plane.DirectConfiguration(ctx, id)
		},
		LeaveSteps: true})
	if err == nil && ctx.Err() == nil {
		err = errors.New("its agent has ended")
	}
	return err
}

// way is what the control plane's environment says of how steps reach it.
func (s *server) way() (caFile string, plain bool) {
	for _, v := range s.o.Environ {
		switch name, value, _ := strings.Cut(v, "="); name {
		case "FAIRLEAD_CA_FILE":
			caFile = value
		case "FAIRLEAD_ALLOW_PLAIN_HTTP":
			plain, _ = strconv.ParseBool(value) // what is none allows nothing
		}
	}
	return caFile, plain
}

// environ are the settings of executors, which fill in what configurations leave
// out. Nothing else of the control plane's environment is an agent's business,
// and nothing at all is its steps'.
func (s *server) environ() []string {
	var out []string
	for _, v := range s.o.Environ {
		if strings.HasPrefix(v, "FAIRLEAD_KUBERNETES_") || strings.HasPrefix(v, "FAIRLEAD_ECS_") {
			out = append(out, v)
		}
	}
	if s.o.Image != "" {
		out = append([]string{"FAIRLEAD_KUBERNETES_IMAGE=" + s.o.Image, "FAIRLEAD_ECS_IMAGE=" + s.o.Image}, out...)
	}
	return out
}
