package simtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/internal/plugin"
	"github.com/fairlead/fairlead/runner/internal/stepdir"
)

// tofu is the terraform plugin with a model of the tool. The model keeps to
// what OpenTofu does: it locks, it compares what is there with what is wanted,
// it applies a saved plan only to the state that the plan was made from, it
// saves its state now and then, when it is interrupted and at the end, and
// when it is killed it saves nothing.
type tofu struct {
	step *stepProcess
	in   stepdir.Input
}

// state is what the tool keeps. It has the version of a real state, because the
// control plane may look at that.
type state struct {
	Version   int               `json:"version"` // 4
	Serial    int               `json:"serial"`
	Lineage   string            `json:"lineage"`
	Resources map[string]object `json:"sim_resources"`
	Outputs   map[string]any    `json:"outputs"`
}

// object is one thing in the cloud, as the state knows it.
type object struct {
	UID  string `json:"uid"`
	Attr string `json:"attr"`
}

// savedPlan is what an apply carries out.
type savedPlan struct {
	Key     string            `json:"key"`
	Serial  int               `json:"serial"`
	Lineage string            `json:"lineage"`
	Prior   map[string]object `json:"prior"` // what the plan found
	Want    map[string]string `json:"want"`  // attribute by resource; none: remove all
	Nonce   string            `json:"nonce"`
}

// run is one run of the tool.
type run struct {
	*tofu
	p         *process // the tool's
	spec      plugin.Spec
	key       string
	out       io.Writer
	store     storage
	interrupt chan struct{} // closed by stop
	stopped   sync.Once
	began     bool
	deaf      bool // it ignores interrupts
	st        state
	saved     state // as it was read or saved last
}

// ending is how a run ended.
type ending struct {
	res   plugin.Result
	err   error
	plan  []byte
	other bool // it was killed: nothing is known
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
	if spec.State.Storage == "http" {
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
		e.err = plugin.Errorf(plugin.ReasonToolKilled, "the tool was killed; plan again")
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

// await does what the real plugin does when its context ends: interrupt, wait,
// kill.
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

// saves reports whether the tool changes something, and is therefore given time
// to save its state when its step dies.
func (r *run) saves() bool { return r.spec.Plan != nil }

// stop interrupts the tool.
func (r *run) stop() { r.stopped.Do(func() { close(r.interrupt) }) }

// outlive interrupts the tool when its step dies, as the kernel does with one
// that was started to outlive its step.
func (r *run) outlive() {
	select {
	case <-r.step.p.dead:
		r.stop()
	case <-r.p.ended():
	}
}

// recorded is a plugin of the real runner whose output is kept.
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

// pipe is the tool's output: through its step, into the job's log.
type pipe struct {
	r       *run
	log     io.Writer
	attempt string
}

func (p *pipe) Write(b []byte) (int, error) {
	if !p.r.step.p.alive() {
		if p.r.saves() {
			return len(b), nil // into a pipe that somebody empties
		}
		p.r.p.kill() // SIGPIPE
		p.r.p.check("pipe")
	}
	p.r.step.h.w.ledger.wrote(p.attempt, b)
	return p.log.Write(b)
}

func (r *run) say(format string, args ...any) {
	r.p.cross(r.p.w.place(r.p.name, "say"), time.Microsecond, 100*time.Microsecond)
	fmt.Fprintf(r.out, format+"\n", args...)
}

// errInterrupted is how a tool ends that was interrupted.
var errInterrupted = plugin.Errorf(plugin.ReasonToolFailed, "the tool was interrupted")

func (r *run) interrupted() bool { return !r.deaf && isClosed(r.interrupt) }

// work is something that takes the tool its time, and before which it may go
// wrong.
func (r *run) work(what string) error {
	w := r.p.w
	place := w.place(r.p.name, what)
	r.p.cross(place, 5*time.Millisecond, 3*time.Second)
	switch w.fault(place, "tool-dies", "tool-fails", "tool-hangs", "tool-slow") {
	case "tool-dies":
		r.p.kill()
		r.p.check(place)
	case "tool-fails":
		r.say("Error: %s did not work", what)
		return plugin.Errorf(plugin.ReasonToolFailed, "%s did not work", what)
	case "tool-slow":
		r.p.cross(place+" slow", 10*time.Second, 2*time.Minute)
	case "tool-hangs":
		heard := r.interrupt
		if r.deaf {
			heard = nil
		}
		select {
		case <-heard:
		case <-r.p.dead:
			r.p.check(place)
		}
	}
	if w.fault(place+" output", "tool-floods") != "" {
		for range 40 {
			r.say("%s", strings.Repeat(what+" ", 2000))
		}
	}
	return nil
}

func (r *run) main(saved []byte) (e ending) {
	w := r.p.w
	r.deaf = w.fault(r.p.name+" signals", "tool-ignores-interrupt") != ""
	if w.fault(r.p.name+" fork", "tool-forks") != "" {
		r.fork()
	}
	r.say("%s %s, epoch %d", r.spec.Operation, r.key, r.spec.Epoch)
	if err := r.work("init"); err != nil {
		e.err = err
		return e
	}
	if err := r.store.lock(); err != nil {
		r.say("Error: %v", err)
		e.err = err
		return e
	}
	e.err = func() error {
		st, err := r.store.read()
		if err != nil {
			return err
		}
		r.st, r.saved = st, clone(st)
		if saved != nil {
			return r.apply(saved)
		}
		e.plan, e.res.Plan, err = r.plan()
		return err
	}()
	if r.spec.Plan != nil && r.began {
		if err := r.save(); err != nil {
			r.say("Error: the state is not saved: %v", err)
			w.ledger.abandon(r, "its state could not be saved")
			e.err = errors.Join(plugin.Errorf("state-unsaved", "the tool could not save its state: %v", err), e.err)
		}
	}
	if err := r.store.unlock(); err != nil {
		r.say("Warning: the lock is not given back: %v", err)
	}
	if e.err == nil {
		e.res.Outputs = r.outputs()
	}
	r.say("done")
	return e
}

// fork leaves a process behind that outlives the tool and hears no signal.
func (r *run) fork() {
	child := r.p.w.spawn(r.p.name + " child")
	h := r.step.h
	h.mu.Lock()
	r.step.tools = append(r.step.tools, child)
	h.mu.Unlock()
}

func (r *run) wanted() map[string]string {
	want := map[string]string{}
	if r.spec.Operation == "plan-destroy" {
		return want
	}
	var c component
	for _, c = range r.p.w.plan.app {
		if c.name == r.spec.Component {
			break
		}
	}
	for i := range c.resources {
		want[fmt.Sprint("r", i+1)] = attribute(r.spec.Vars)
	}
	return want
}

// attribute is what a resource is like that was made with the variables.
func attribute(vars map[string]events.SpecVar) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		fmt.Fprintf(h, "%s=%s\n", name, vars[name].Value)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// plan compares what is there with what is wanted.
func (r *run) plan() ([]byte, *wire.Plan, error) {
	w := r.p.w
	began := w.ledger.planStarts(r)
	// Refresh: what the cloud has no more is made again, what was changed behind
	// the state's back is changed again.
	for _, name := range slices.Sorted(maps.Keys(r.st.Resources)) {
		if err := r.work("refresh " + name); err != nil {
			return nil, nil, err
		}
		if r.interrupted() {
			return nil, nil, errInterrupted
		}
		if attr, there := w.ledger.look(r.key, r.st.Resources[name]); there {
			r.st.Resources[name] = object{r.st.Resources[name].UID, attr}
		} else {
			delete(r.st.Resources, name)
		}
	}
	want := r.wanted()
	changes := wire.Changes{}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch have, ok := r.st.Resources[name]; {
		case !ok:
			changes.Add++
		case have.Attr != want[name]:
			changes.Change++
		}
	}
	for name := range r.st.Resources {
		if _, ok := want[name]; !ok {
			changes.Destroy++
		}
	}
	p := savedPlan{Key: r.key, Serial: r.saved.Serial, Lineage: r.saved.Lineage, Prior: r.st.Resources, Want: want, Nonce: r.p.name}
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, nil, err
	}
	r.say("Plan: %d to add, %d to change, %d to destroy.", changes.Add, changes.Change, changes.Destroy)
	noOp := changes == wire.Changes{}
	w.ledger.planEnds(r, began, digest(raw), want)
	return raw, &wire.Plan{Digest: digest(raw), NoOp: noOp, Changes: changes, Summary: json.RawMessage(`{}`)}, nil
}

// apply carries out a saved plan.
func (r *run) apply(saved []byte) error {
	var p savedPlan
	if err := json.Unmarshal(saved, &p); err != nil {
		return err
	}
	if p.Key != r.key {
		r.p.w.violate("plans-are-of-their-component", "%s applies a plan of %s", r.key, p.Key)
	}
	if p.Serial != r.st.Serial || p.Lineage != r.st.Lineage {
		r.say("Error: the saved plan is stale")
		return plugin.Errorf("plan-stale", "the state has changed since the plan was made; plan again")
	}
	r.p.w.ledger.applyStarts(r)
	r.began = true
	if r.st.Lineage == "" {
		r.st.Lineage = "lineage-" + r.p.name
	}
	if r.st.Resources = maps.Clone(p.Prior); r.st.Resources == nil {
		r.st.Resources = map[string]object{}
	}
	names := slices.Sorted(maps.Keys(p.Want))
	for name := range r.st.Resources {
		if _, ok := p.Want[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	saves := time.Now()
	for _, name := range slices.Compact(names) {
		if r.interrupted() {
			return errInterrupted
		}
		have, ok := r.st.Resources[name]
		want, wanted := p.Want[name]
		if ok && have.Attr == want {
			continue
		}
		if err := r.work("change " + name); err != nil {
			return err
		}
		switch {
		case !wanted:
			r.p.w.ledger.remove(r, have)
			delete(r.st.Resources, name)
		case ok:
			r.st.Resources[name] = r.p.w.ledger.update(r, have, want)
		default:
			r.st.Resources[name] = r.p.w.ledger.create(r, want)
		}
		r.say("%s: changed", name)
		if time.Since(saves) > 20*time.Second { // as OpenTofu does
			if err := r.save(); err != nil {
				return plugin.Errorf("state-unsaved", "the tool could not save its state: %v", err)
			}
			saves = time.Now()
		}
	}
	return nil
}

// save stores the state.
func (r *run) save() error {
	next := clone(r.st)
	next.Serial++
	next.Version = 4
	if err := r.store.write(next); err != nil {
		return err
	}
	r.st.Serial = next.Serial
	r.saved = next
	r.p.w.ledger.savedState(r)
	return nil
}

func (r *run) outputs() map[string]wire.FullOutput {
	attr := "none"
	for _, o := range r.st.Resources {
		attr = o.Attr
	}
	if len(r.st.Resources) == 0 {
		return map[string]wire.FullOutput{}
	}
	return map[string]wire.FullOutput{"id": {Value: json.RawMessage(`"` + r.key + "-" + attr + `"`)}, "secret": {Value: json.RawMessage(`"psst"`), Sensitive: true}}
}

func clone(s state) state {
	s.Resources = maps.Clone(s.Resources)
	return s
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// storage is where the state is.
type storage interface {
	lock() error
	read() (state, error)
	write(state) error
	unlock() error
}

// localState is a state on a machine's disk. Its lock goes with its holder.
type localState struct {
	doc    []byte
	holder *process
}

func (h *host) localState(key string) *localState {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.states[key] == nil {
		h.states[key] = &localState{}
	}
	return h.states[key]
}

type localStore struct {
	r  *run
	at *localState
}

func (s *localStore) lock() error {
	s.r.p.cross(s.r.p.w.place(s.r.p.name, "lock"), 10*time.Microsecond, time.Millisecond)
	if s.at.holder != nil && s.at.holder.alive() {
		return plugin.Errorf("state-locked", "the state is locked by %s; wait for it", s.at.holder.name)
	}
	s.at.holder = s.r.p
	return nil
}

func (s *localStore) read() (st state, err error) {
	if s.at.doc != nil {
		err = json.Unmarshal(s.at.doc, &st)
	}
	return st, err
}

func (s *localStore) write(st state) (err error) {
	s.r.p.cross(s.r.p.w.place(s.r.p.name, "save"), 100*time.Microsecond, 100*time.Millisecond)
	s.at.doc, err = json.Marshal(st)
	return err
}

func (s *localStore) unlock() error {
	s.at.holder = nil
	return nil
}

// remoteState is a state at the control plane, over the tool's own connections.
type remoteState struct {
	r     *run
	token string
}

// tries are those of OpenTofu's http backend, as the runner sets them.
const tries = 7

func (s *remoteState) call(method, path string, query url.Values, body any) (int, []byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	l := &link{p: s.r.p, host: s.r.step.h, fast: 200 * time.Microsecond, slow: 20 * time.Millisecond}
	var last error
	for try := range tries {
		if try > 0 {
			s.r.p.sleep(time.Duration(1<<(try-1)) * time.Second)
		}
		u := "http://control.example" + s.r.spec.State.Path + path
		if len(query) > 0 {
			u += "?" + query.Encode()
		}
		req, err := http.NewRequest(method, u, bytes.NewReader(raw))
		if err != nil {
			return 0, nil, err
		}
		req.SetBasicAuth(string(s.r.spec.Job), s.token)
		res, err := l.RoundTrip(req)
		if err != nil {
			last = err
			continue
		}
		b, err := io.ReadAll(res.Body)
		switch {
		case err != nil:
			last = err
		case res.StatusCode >= 500:
			last = fmt.Errorf("the control plane answered %s", res.Status)
		default:
			return res.StatusCode, b, nil
		}
	}
	return 0, nil, last
}

func (s *remoteState) lockID() string { return "lock-" + s.r.p.name }

func (s *remoteState) lock() error {
	code, b, err := s.call(http.MethodPut, "/lock", nil, map[string]string{"ID": s.lockID()})
	switch {
	case err != nil:
		return plugin.Errorf("state-unreachable", "the state cannot be locked: %v", err)
	case code == http.StatusOK:
		return nil
	}
	return plugin.Errorf("state-locked", "the state cannot be locked (%d): %.200s", code, b)
}

func (s *remoteState) read() (st state, err error) {
	code, b, err := s.call(http.MethodGet, "", nil, nil)
	switch {
	case err != nil:
		return st, plugin.Errorf("state-unreachable", "the state cannot be read: %v", err)
	case code == http.StatusNoContent:
		return st, nil
	case code == http.StatusOK:
		return st, json.Unmarshal(b, &st)
	}
	return st, plugin.Errorf("state-unreachable", "the state cannot be read (%d): %.200s", code, b)
}

func (s *remoteState) write(st state) error {
	code, b, err := s.call(http.MethodPost, "", url.Values{"ID": {s.lockID()}}, st)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the control plane answered %d: %.200s", code, b)
	}
	return err
}

func (s *remoteState) unlock() error {
	code, b, err := s.call(http.MethodDelete, "/lock", nil, map[string]string{"ID": s.lockID()})
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the control plane answered %d: %.200s", code, b)
	}
	return err
}

// planStore is where saved plans are: beside the state.
type planStore struct {
	t       *tofu
	control *client.Client
	local   bool
}

func (t *tofu) plans(spec plugin.Spec, c *client.Client) planStore {
	return planStore{t, c, spec.State.Storage == "local"}
}

func (p planStore) put(ctx context.Context, spec plugin.Spec, b []byte) error {
	if p.local {
		p.t.step.h.mu.Lock()
		defer p.t.step.h.mu.Unlock()
		p.t.step.h.plans[string(spec.Job)] = b
		return nil
	}
	return p.again(ctx, func() error { return p.control.PutPlan(ctx, string(spec.Job), b) })
}

func (p planStore) get(ctx context.Context, spec plugin.Spec) (b []byte, err error) {
	if p.local {
		p.t.step.h.mu.Lock()
		defer p.t.step.h.mu.Unlock()
		b, ok := p.t.step.h.plans[string(spec.Plan.Job)]
		if !ok {
			return nil, plugin.Errorf("plan-missing", "the plan is not on this runner's disk; plan again")
		}
		return b, nil
	}
	err = p.again(ctx, func() (err error) { b, err = p.control.GetPlan(ctx, string(spec.Job)); return err })
	if client.HasStatus(err, http.StatusNotFound) {
		p.t.step.h.w.planMissing(holder{spec.Job, spec.Epoch})
	}
	if err != nil {
		return nil, plugin.Errorf("plan-missing", "the saved plan cannot be had: %v; plan again", err)
	}
	return b, nil
}

// again is what the plugin leaves to the client, which repeats a request a few
// times.
func (p planStore) again(_ context.Context, do func() error) error { return do() }
