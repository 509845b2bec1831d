package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/plugin"
)

// tofu is the terraform plugin with a model of the tool. The model behaves like OpenTofu. It
// locks the state. Its plan compares the existing resources with the wanted resources. It
// applies a saved plan only to the state from which the plan was made. It saves the state from
// time to time, when it is interrupted, and at the end. If it is killed, it saves nothing.
type tofu struct {
	step *stepProcess
	in   attempt.Input
}

// ending is the result of a run of the tool.
type ending struct {
	res   plugin.Result
	err   error
	plan  []byte
	other bool // the tool was killed, so there is no result
}

// Operations implements plugin.Plugin.
func (*tofu) Operations() []string { return []string{"plan", "apply", "plan-destroy", "destroy"} }

// Run implements plugin.Plugin.
func (t *tofu) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	w := t.step.h.w
	r := &run{tofu: t, spec: spec, key: spec.InstallName + "/" + spec.Component, interrupt: make(chan struct{}),
		p: w.spawn(w.place("tool", spec.Operation, spec.InstallName, spec.Component))}
	plans := t.plans(spec, env.Control)
	var saved []byte
	if spec.Plan != nil {
		b, err := plans.get(ctx, spec)
		if err != nil {
			return plugin.Result{}, err
		}
		if sum := digest(b); sum != spec.Plan.Digest {
			return plugin.Result{}, plugin.Errorf("plan-changed", "the saved plan is not the one that was approved; plan again")
		}
		saved = b
	}
	if w.inCluster(spec.Component) {
		r.store = &objects{r: r, of: w.cluster(r.key)}
	} else if spec.State.Storage == "http" {
		r.store = &remoteState{r: r, token: env.Control.Token()}
	} else {
		r.store = &localStore{r: r, at: t.step.h.localState(r.key)}
	}
	r.out = &pipe{r: r, log: env.Log, attempt: env.Attempt}
	h := t.step.h
	h.mu.Lock()
	t.step.tools = append(t.step.tools, r.p)
	if r.saves() {
		t.step.run = r
	}
	h.mu.Unlock()
	w.ledger.toolStarts(r)
	w.fetches(spec)
	if r.saves() {
		go r.outlive()
	}

	done := make(chan ending, 1)
	go func() {
		e := ending{other: true}
		defer func() {
			w.ledger.toolEnds(r)
			r.p.exit()
			done <- e
		}()
		e = r.main(saved)
	}()
	e := t.await(ctx, r, done)
	t.step.p.check(r.p.name)
	res := e.res
	res.Mutated = r.began
	if e.other {
		e.err = plugin.Errorf(fairlead.ReasonToolKilled, "the tool was killed; plan again")
	}
	if e.err != nil {
		if ctx.Err() != nil {
			return res, errors.Join(context.Cause(ctx), e.err)
		}
		return res, e.err
	}
	if e.plan != nil {
		if err := plans.put(ctx, spec, e.plan); err != nil {
			return res, err
		}
	}
	return res, nil
}

// await waits for the end of the tool. When ctx ends, await interrupts the tool. If the tool
// does not end within the grace period, await kills the tool, as the real plugin does.
func (t *tofu) await(ctx context.Context, r *run, done <-chan ending) ending {
	select {
	case e := <-done:
		t.step.p.check(r.p.name)
		return e
	case <-ctx.Done():
	case <-t.step.p.dead:
	}
	t.step.p.check(r.p.name)
	r.stop()
	grace := time.NewTimer(r.spec.Grace.Duration())
	defer grace.Stop()
	select {
	case e := <-done:
		t.step.p.check(r.p.name)
		return e
	case <-grace.C:
	case <-t.step.p.dead:
	}
	t.step.p.check(r.p.name)
	r.p.kill()
	return <-done
}

// script is a model of the plugin of the app's action. A run has an effect that cannot be repeated, and nothing shows whether it
// has happened.
type script struct{ step *stepProcess }

// Operations implements plugin.Plugin.
func (*script) Operations() []string {
	return []string{"plan", "apply", "plan-destroy", "destroy", "plan-run", "run"}
}

// Run implements plugin.Plugin.
func (s *script) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	p, w := s.step.p, s.step.h.w
	place := w.place("script", spec.Operation, spec.InstallName, spec.Component)
	p.cross(place, 5*time.Millisecond, 3*time.Second)
	plan := digest([]byte(string(spec.Deployment) + attribute(spec.Vars)))
	switch {
	case ctx.Err() != nil:
		return plugin.Result{}, context.Cause(ctx)
	case spec.Plan == nil:
		return plugin.Result{Plan: &wire.Plan{Digest: plan, Changes: wire.Changes{Add: 1}, ChangeSet: &changeset.Set{V: changeset.Version, Changes: []changeset.Change{}}}}, nil
	case spec.Plan.Digest != plan:
		return plugin.Result{}, plugin.Errorf("plan-stale", "a value has changed since the plan; plan again")
	}
	w.actionRuns(spec)
	w.hookRuns(spec)
	fmt.Fprintf(env.Log, "%s %s runs\n", spec.InstallName, spec.Component)
	switch p.cross(place+" works", 5*time.Millisecond, 3*time.Second); w.fault(place, "tool-fails", "tool-slow") {
	case "tool-fails":
		return plugin.Result{Mutated: true}, plugin.Errorf(fairlead.ReasonToolFailed, "the script did not work")
	case "tool-slow":
		p.cross(place+" slow", 10*time.Second, 2*time.Minute)
	}
	w.actionEnds(spec)
	return plugin.Result{Mutated: true}, nil
}

// recorded is a plugin of the real runner. The ledger records its output.
type recorded struct {
	plugin.Plugin
	w *world
}

// Run implements plugin.Plugin.
func (p recorded) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	log := env.Log
	env.Log = writerFunc(func(b []byte) (int, error) {
		p.w.ledger.wrote(env.Attempt, b)
		return log.Write(b)
	})
	return p.Plugin.Run(ctx, spec, env)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// pipe writes the tool's output to its step, which sends it to the job's log.
type pipe struct {
	r       *run
	log     io.Writer
	attempt string
}

func (p *pipe) Write(b []byte) (int, error) {
	if !p.r.step.p.alive() {
		if p.r.saves() {
			return len(b), nil // a tool that changes resources outlives its step, and a process still reads the pipe
		}
		p.r.p.kill() // SIGPIPE
		p.r.p.check("pipe")
	}
	p.r.step.h.w.ledger.wrote(p.attempt, b)
	return p.log.Write(b)
}
