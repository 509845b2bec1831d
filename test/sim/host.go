package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build"
	"github.com/fairlead/fairlead/runner/plugin/check"
	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/step"
	"github.com/fairlead/fairlead/runner/step/parts"
	"github.com/fairlead/fairlead/runner/workspace"
)

// cutting is the state of a host's network.
type cutting int

const (
	open       cutting = iota
	refusing           // connections fail at once
	swallowing         // packets are dropped without an error
)

// host is a customer's host: a disk, an agent that a supervisor restarts, and its steps.
type host struct {
	w      *world
	name   string
	runner runnerPlan
	dir    string
	token  string // enrolment token

	mu      sync.Mutex
	agent   *process
	stop    chan os.Signal
	steps   map[string]*stepProcess // by attempt, also those that have ended
	drains  bool                    // the agent got SIGTERM, so it claims no jobs
	signals int                     // number of SIGTERMs to the agent
	down    bool                    // no power
	gone    bool                    // removed for good
	cut     cutting
	skew    time.Duration
	states  map[string]*localState // on its disk, by install and component
	plans   map[string][]byte      // on its disk, by job
}

func (w *world) newHost(name string, r runnerPlan, token string) *host {
	h := &host{w: w, name: name, runner: r, token: token, dir: filepath.Join(w.opt.Dir, name), steps: map[string]*stepProcess{},
		states: map[string]*localState{}, plans: map[string][]byte{}}
	w.mu.Lock()
	w.hosts = append(w.hosts, h)
	w.mu.Unlock()
	go h.supervise()
	return h
}

// now returns the time of the host's clock.
func (h *host) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.skew)
}

func (h *host) cutNow() cutting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cut
}

func (h *host) setCut(c cutting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = c
}

func (h *host) off() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down || h.gone
}

// supervise starts an agent whenever no agent runs on the host.
func (h *host) supervise() {
	for !h.w.over() {
		h.w.nap(h.w.between(h.w.place("start "+h.name), 50*time.Millisecond, 5*time.Second))
		if h.w.over() || h.off() {
			h.w.nap(time.Second)
			continue
		}
		p := h.startAgent()
		<-p.ended()
	}
}

func (h *host) startAgent() *process {
	p := h.w.spawn(h.w.place("agent", h.name))
	p.onKill = func() { os.Remove(filepath.Join(h.dir, "lock")) } // the kernel releases the lock of a dead process
	stop := make(chan os.Signal, 8)
	h.mu.Lock()
	h.agent, h.stop, h.drains, h.signals = p, stop, false, 0
	h.mu.Unlock()
	h.w.note("%s starts", p.name)
	go func() {
		defer p.exit()
		err := agent.Run(p.ctx, config.Runner{URL: "https://control.example", Data: h.dir, SharedProcess: "true", EnrolmentToken: h.token,
			Config: fmt.Sprintf("{final: %t, runner_configuration: {type: local, concurrency: %d}}", h.runner.stack, h.runner.capacity)},
			h.w.logger(p.name), agent.Options{Version: "sim", Executor: &simExecutor{h, p}, Stop: stop, Random: p.random, AwaitTool: func(ctx context.Context, workspace string) (proctree.Outcome, error) {
				return h.awaitTool(ctx, p, filepath.Base(workspace)), nil
			},
				Transport: &link{p: p, host: h, role: "agent", fast: 200 * time.Microsecond, slow: 20 * time.Millisecond}})
		if err != nil {
			h.w.note("%s ends: %s", p.name, strings.ReplaceAll(err.Error(), h.w.opt.Dir, ""))
		}
	}()
	return p
}

// awaitTool models proctree.AwaitSurvivor for the agent p.
func (h *host) awaitTool(ctx context.Context, p *process, attemptID string) proctree.Outcome {
	p.cross("await the tool of "+attemptID, 10*time.Microsecond, 5*time.Millisecond)
	h.mu.Lock()
	st := h.steps[attemptID]
	var r *run
	if st != nil {
		r = st.run
		st.awaited = true
	}
	h.mu.Unlock()
	if r == nil || !r.saves() || !r.p.alive() {
		return proctree.None
	}
	select {
	case <-r.p.ended():
		p.check("await")
		return proctree.Ended
	case <-p.dead:
	case <-ctx.Done():
	}
	p.check("await")
	return proctree.Working
}

// agentNow returns the agent, or nil if the agent is not alive.
func (h *host) agentNow() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.agent == nil || !h.agent.alive() {
		return nil
	}
	return h.agent
}

// killAgent kills the agent.
func (h *host) killAgent() {
	if p := h.agentNow(); p != nil {
		p.kill()
	}
}

// signalAgent sends SIGTERM to the agent.
func (h *host) signalAgent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drains = true
	if h.stop != nil {
		select {
		case h.stop <- os.Interrupt:
			h.signals++
		default:
		}
	}
}

// processes returns the tools, steps and the agent that are alive, in a fixed order.
func (h *host) processes() []*process {
	steps, all := h.living()
	for _, s := range steps {
		all = append(all, s.p)
	}
	if p := h.agentNow(); p != nil {
		all = append(all, p)
	}
	return all
}

// living returns the steps that are alive and the tools that are alive, each in a fixed order.
func (h *host) living() (steps []*stepProcess, tools []*process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.steps {
		if s.p.alive() {
			steps = append(steps, s)
		}
		for _, t := range s.tools {
			if t.alive() {
				tools = append(tools, t)
			}
		}
	}
	slices.SortFunc(steps, func(a, b *stepProcess) int { return strings.Compare(a.id, b.id) })
	slices.SortFunc(tools, func(a, b *process) int { return strings.Compare(a.name, b.name) })
	return steps, tools
}

// powerOff kills all processes of the host.
func (h *host) powerOff() {
	h.killAgent()
	steps, tools := h.living()
	for _, t := range tools {
		t.kill()
	}
	for _, s := range steps {
		s.p.kill()
	}
}

// stepProcess is one step.
type stepProcess struct {
	h     *host
	id    string
	p     *process
	agent *process // the agent that started the step; only this agent gets the exit code

	tools   []*process // under the host's lock
	run     *run       // the run of a tool that changes resources; under the host's lock
	awaited bool       // an agent waited for the end of the tool of run; under the host's lock
	code    int        // exit code, valid after p.gone is closed
	signals chan os.Signal
}

// simExecutor starts steps as goroutines.
type simExecutor struct {
	h *host
	p *process // the agent
}

var errFork = errors.New("fork/exec: resource temporarily unavailable")

// Place implements executor.Executor.
func (e *simExecutor) Place() executor.Place {
	return executor.Place{Data: e.h.dir, Shared: true, Machine: true, KillFor: 20 * time.Second}
}

// Remove implements executor.Executor.
func (e *simExecutor) Remove(context.Context, string) error { return nil }

// Start implements executor.Executor.
func (e *simExecutor) Start(_ context.Context, s executor.Step) (executor.Handle, error) {
	h, w := e.h, e.h.w
	dir := attempt.Dir(s.Args[len(s.Args)-1])
	in, err := dir.Input()
	if err != nil {
		return nil, err
	}
	name := w.place("step", in.Operation, in.Install, in.Component)
	if right := w.runnerOf(in.Operation, in.Install, in.Component); right != "" && right != h.runner.name {
		w.violate("jobs-go-to-their-runner", "%s is started on %s, which is of runner %s, want %s", name, h.name, h.runner.name, right)
	}
	if !e.p.alive() {
		// The agent was killed while it waited for an earlier step, and then made these folders without a crossing. The host has no
		// such files: after a kill nothing is written.
		for _, folder := range []string{"steps", "attempts"} {
			if err := os.RemoveAll(filepath.Join(h.dir, folder, s.ID)); err != nil {
				w.violate("simulator", "remove what a killed agent wrote: %v", err)
			}
		}
	}
	e.p.cross("launch "+name, time.Millisecond, 100*time.Millisecond)
	fault := w.fault(name+" launch", "launch-fails", "step-dies-at-launch")
	if fault == "launch-fails" {
		return nil, errFork
	}
	st := &stepProcess{h: h, id: s.ID, p: w.spawn(name), agent: e.p, signals: make(chan os.Signal, 1)}
	if s.Site != "" { // the kernel releases the lock of the step's folder
		st.p.onKill = func() { os.Remove(workspace.SitePath(h.dir, s.Site) + ".lock") }
	}
	h.mu.Lock()
	h.steps[s.ID] = st
	h.mu.Unlock()
	var token string
	for _, v := range s.Secrets {
		if t, ok := strings.CutPrefix(v, attempt.TokenVariable+"="); ok {
			token = t
		}
	}
	w.note("%s is attempt %s", name, s.ID)
	go func() {
		defer st.p.exit()
		st.p.cross("exec "+name, time.Millisecond, 50*time.Millisecond)
		if fault != "" {
			st.p.kill()
		}
		st.p.check(name)
		st.code = step.Run(st.p.ctx, dir, in, token, step.Env{
			Parts:   parts.All(), // as the runner's program, which finds cancel markers
			Version: "sim", Plugins: plugin.Registry{check.Name: recorded{check.Plugin{}, w}, "terraform": &tofu{st, in}, "script": recorded{&script{st}, w}, chartType: &tofu{st, in}, build.Name: recorded{&builder{st}, w}}, Log: w.logger(name), Now: h.now, Random: st.p.random,
			NewID: func() string { return "step-" + s.ID }, Signals: st.signals,
			Transport: &link{p: st.p, host: h, role: "step", step: st, fast: 200 * time.Microsecond, slow: 20 * time.Millisecond},
			Signal:    func() { st.p.check(name); st.killTools() },
			Kill:      func(context.Context) (int, error) { st.p.check(name); return st.killTools(), nil },
		})
		st.p.check(name)
		w.note("%s ends with %d", name, st.code)
		w.mu.Lock()
		mistaken := st.code == attempt.ExitStale && w.leased(holder{in.Job, in.Epoch})
		w.mu.Unlock()
		if mistaken {
			w.violate("steps-know-their-lease", "%s ends because it assumes that another attempt has its lease, but its own lease is current", name)
		}
	}()
	return &simHandle{e, st, s.ID}, nil
}

func (s *stepProcess) killTools() (n int) {
	s.h.mu.Lock()
	tools := slices.Clone(s.tools)
	s.h.mu.Unlock()
	for _, t := range tools {
		if t.alive() {
			t.kill()
			n++
		}
	}
	return n
}

// Attach implements executor.Executor.
func (e *simExecutor) Attach(_ context.Context, id string) (executor.Handle, error) {
	e.p.cross("attach "+id, time.Millisecond, 10*time.Millisecond)
	e.h.mu.Lock()
	st := e.h.steps[id]
	e.h.mu.Unlock()
	if st == nil || !st.p.alive() {
		return &simHandle{e, st, id}, executor.ErrGone
	}
	return &simHandle{e, st, id}, nil
}

type simHandle struct {
	e  *simExecutor
	st *stepProcess // nil: the step was never started
	id string
}

// ID implements executor.Handle.
func (h *simHandle) ID() string { return h.id }

// Wait implements executor.Handle.
func (h *simHandle) Wait(ctx context.Context) (executor.Exit, error) {
	h.e.p.check("wait")
	if h.st == nil {
		return executor.Exit{Cause: fairlead.CauseVanished}, nil
	}
	select {
	case <-h.st.p.dead:
	case <-h.st.p.gone:
	case <-ctx.Done():
		h.e.p.check("wait")
		return executor.Exit{}, ctx.Err()
	case <-h.e.p.dead:
	}
	h.e.p.cross("wait "+h.st.p.name, 10*time.Microsecond, 5*time.Millisecond)
	switch {
	case h.st.agent != h.e.p:
		return executor.Exit{Cause: fairlead.CauseVanished}, nil // the step is not a child of this agent, so its exit code is unknown
	case isClosed(h.st.p.dead):
		return executor.Exit{Signal: "killed", Cause: fairlead.CauseKilled}, nil
	}
	code := h.st.code
	return executor.Exit{Code: &code, Cause: fairlead.CauseExited}, nil
}

// Interrupt implements executor.Handle.
func (h *simHandle) Interrupt() error {
	h.e.p.check("interrupt")
	if h.st != nil {
		select {
		case h.st.signals <- os.Interrupt:
		default:
		}
	}
	return nil
}

// Output implements executor.Handle.
func (h *simHandle) Output(context.Context, int) (string, error) { return "", nil }

// Kill implements executor.Handle.
func (h *simHandle) Kill(context.Context) error {
	h.e.p.cross("kill "+h.id, 10*time.Microsecond, 5*time.Millisecond)
	if h.st != nil {
		h.e.h.hasWaited(h.st)
		if h.st.p.alive() {
			h.st.p.kill()
		}
		h.st.killTools()
	}
	return nil
}

// hasWaited is called before an agent kills the remaining processes of a step. It checks that the
// agent gave the tool time to save its state. An agent that got three SIGTERMs need not wait.
func (h *host) hasWaited(st *stepProcess) {
	h.mu.Lock()
	hasty := isClosed(st.p.dead) && st.run != nil && st.run.began && st.run.p.alive() && !st.awaited && h.signals < 3
	h.mu.Unlock()
	if hasty {
		h.w.violate("tools-may-save", "%s is killed before it could save its state", st.run.p.name)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// vanish removes the host for good.
func (h *host) vanish() {
	h.mu.Lock()
	h.gone = true
	h.mu.Unlock()
	h.powerOff()
}
