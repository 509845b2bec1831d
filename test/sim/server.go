package sim

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
)

// server is one process of the control plane. All servers share the backing.
type server struct {
	p       *process
	control *control.Control
	handler http.Handler
}

// sweepEvery is the interval of a server's sweep, as in the embedded server.
const sweepEvery = time.Second

// terms returns the job terms. In a quarter of the runs, they are the terms of a runner that
// pulls images: the start timeout is longer than the time after which an agent without
// heartbeats is lost.
func (w *world) terms() job.Terms {
	if w.unit("images are pulled") < 0.25 {
		return job.Terms{StartTimeout: 5 * time.Minute}
	}
	return job.Terms{}
}

// parallelism returns the maximum number of components of a deployment that have a job at the
// same time. It is 1 in a quarter of the runs. In the other runs, it is greater than the number
// of components of an app.
func (w *world) parallelism() int {
	if w.unit("one at a time") >= 0.75 {
		return 1
	}
	return deployment.Parallelism
}

// maxBody returns the largest body that the front end of this world accepts, in bytes; 0: every body. With a
// front end that accepts little, steps send plans and reports in parts, and get specs and plans in parts.
func (w *world) maxBody() int {
	if w.unit("bodies in parts") >= 0.75 {
		return 150
	}
	return 0
}

// logBudget returns the budget of log bytes of each runner in this world. In a quarter of the worlds it is so small that
// logs are cut.
func (w *world) logBudget() joblog.Budget {
	if w.unit("logs are cut") >= 0.75 {
		return joblog.Budget{Burst: 640, PerHour: 600}
	}
	return joblog.Budget{}
}

// startServer starts a server, which then answers requests.
func (w *world) startServer() *server {
	s := &server{p: w.spawn(w.place("server"))}
	logger := w.logger(s.p.name)
	deps := control.Deps{
		Store: store.New(&simEngine{s.p, w.backing}), Queue: &simQueue{s.p, w.backing}, Log: &simLog{s.p, w.backing}, Blobs: &simBlobs{s.p, w.backing},
		Sealer: seal.NewKeyring(w.sealKey), Signer: events.NewSigner(w.signKey), Minter: identity.NewMinter(w.tokenKey), IDs: w.id,
		Now: w.serverTime, Random: s.p.random, Logger: logger, Terms: w.terms(), Parallelism: w.parallelism(), LogBudget: w.logBudget(),
		AgentURL: "https://control.example",
	}
	if w.plan.marks != nil {
		deps.Access, deps.CancelMarks, deps.Intervals = markAccess{}, w.plan.marks, control.Metered()
	}
	s.control = control.New(deps)
	o := api.Options{Control: s.control, Registry: "registry.example:443", Version: "sim", IDs: w.id, Logger: logger, MaxBody: w.maxBody()}
	controlAPI, runnerAPI := api.ControlHandler(o), api.RunnerHandler(o)
	s.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/runner/") {
			runnerAPI.ServeHTTP(rw, r)
			return
		}
		controlAPI.ServeHTTP(rw, r)
	})
	s.control.HoldLeases()
	w.note("%s starts", s.p.name)
	w.mu.Lock()
	w.servers = append(w.servers, s)
	w.mu.Unlock()
	go s.sweep()
	go s.collect()
	go func() {
		<-s.p.ended()
		w.mu.Lock()
		w.servers = slices.DeleteFunc(w.servers, func(o *server) bool { return o == s })
		w.mu.Unlock()
	}()
	return s
}

// pick returns a live server, or nil.
func (w *world) pick(place string) *server {
	w.mu.Lock()
	defer w.mu.Unlock()
	var up []*server
	for _, s := range w.servers {
		if s.p.alive() {
			up = append(up, s)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[w.intn("server of "+place, len(up))]
}

func (s *server) sweep() {
	for {
		place := s.p.w.place(s.p.name, "sweep")
		s.p.cross(place, sweepEvery, sweepEvery+sweepEvery/100)
		if !s.p.alive() {
			return
		}
		if s.p.w.sweepStops() {
			continue
		}
		if _, err := s.control.Sweep(context.WithValue(s.p.ctx, siteKey{}, site{name: place, sweep: true})); err != nil {
			s.p.w.note("%s: %v", place, err)
		}
	}
}

// collectEvery is the interval between two collections of unnamed blobs. It is shorter than the
// interval of the embedded server, but longer than any request.
const collectEvery = 90 * time.Second

func (s *server) collect() {
	var unnamed []string
	for {
		place := s.p.w.place(s.p.name, "collect")
		s.p.cross(place, collectEvery, collectEvery+collectEvery/100)
		if !s.p.alive() {
			return
		}
		var err error
		if unnamed, err = s.control.CollectBlobs(context.WithValue(s.p.ctx, siteKey{}, site{name: place}), unnamed); err != nil {
			s.p.w.note("%s: %v", place, err)
		}
	}
}

// keepServers starts a server whenever none is alive, like a supervisor.
func (w *world) keepServers() {
	for {
		w.mu.Lock()
		var last *server
		if n := len(w.servers); n > 0 {
			last = w.servers[n-1]
		}
		w.mu.Unlock()
		if last != nil {
			<-last.p.ended()
		}
		if w.over() {
			return
		}
		if w.pick("supervisor") != nil {
			continue
		}
		w.nap(w.between(w.place("restart of the server"), 200*time.Millisecond, 20*time.Second))
		if w.over() {
			return
		}
		if w.pick("supervisor") == nil {
			w.startServer()
		}
	}
}

// shutdown ends a server as SIGTERM does: the server has a second to complete its requests.
func (s *server) shutdown() {
	s.p.w.mu.Lock()
	s.p.w.servers = slices.DeleteFunc(s.p.w.servers, func(o *server) bool { return o == s })
	s.p.w.mu.Unlock()
	s.p.cancel() // long polls end
	s.p.w.nap(time.Second)
	s.p.exit()
	s.p.kill() // ends its remaining goroutines
}

func (w *world) over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// nap sleeps for the duration d, or until the run ends.
func (w *world) nap(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ended:
	}
}

// logger returns a logger that writes to the trace.
func (w *world) logger(who string) *slog.Logger {
	if !w.opt.Trace {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(traceWriter{w, who}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

type traceWriter struct {
	w   *world
	who string
}

func (t traceWriter) Write(b []byte) (int, error) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	// Log lines are not in the digest, because they are not part of the behaviour.
	t.w.trace = append(t.w.trace, "                "+t.who+": "+strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = traceWriter{}

// keys are the control plane's keys. They differ between seeds and have no influence on a run.
type keys struct {
	sealKey  seal.Key
	signKey  ed25519.PrivateKey
	tokenKey []byte
}

const org = fairlead.DefaultOrg
