package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// state is the tool's state. It has the format version of a real state, because the control
// plane may read the version.
type state struct {
	Version   int               `json:"version"` // always 4
	Serial    int               `json:"serial"`
	Lineage   string            `json:"lineage"`
	Resources map[string]object `json:"sim_resources"`
	Outputs   map[string]any    `json:"outputs"`
}

// object is a resource in the state.
type object struct {
	UID  string `json:"uid"`
	Attr string `json:"attr"`
}

// savedPlan is the saved plan that an apply executes.
type savedPlan struct {
	Key     string            `json:"key"`
	Serial  int               `json:"serial"`
	Lineage string            `json:"lineage"`
	Prior   map[string]object `json:"prior"` // the resources that the plan found
	Want    map[string]string `json:"want"`  // attribute of each wanted resource, by name; empty: remove all resources
	Nonce   string            `json:"nonce"`
}

// run is one run of the tool.
type run struct {
	*tofu
	p         *process // the tool's process
	spec      plugin.Spec
	key       string
	out       io.Writer
	store     storage
	interrupt chan struct{} // closed by stop
	stopped   sync.Once
	began     bool

	ignoresInterrupt bool
	st               state
	saved            state // the state when it was last read or saved
}

// saves reports whether the tool changes resources. If its step dies, a tool that changes
// resources has time to save its state.
func (r *run) saves() bool { return r.spec.Plan != nil }

// stop interrupts the tool.
func (r *run) stop() { r.stopped.Do(func() { close(r.interrupt) }) }

// outlive interrupts the tool when its step dies. A real step starts such a tool so that the
// tool outlives the step, and the kernel interrupts the tool.
func (r *run) outlive() {
	select {
	case <-r.step.p.dead:
		r.stop()
	case <-r.p.ended():
	}
}

func (r *run) say(format string, args ...any) {
	r.p.cross(r.p.w.place(r.p.name, "say"), time.Microsecond, 100*time.Microsecond)
	fmt.Fprintf(r.out, format+"\n", args...)
}

// errInterrupted is the error of an interrupted tool.
var errInterrupted = plugin.Errorf(fairlead.ReasonToolFailed, "the tool was interrupted")

func (r *run) interrupted() bool { return !r.ignoresInterrupt && isClosed(r.interrupt) }

// work models a part of the tool's work. It takes time, and a fault can occur.
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
		return plugin.Errorf(fairlead.ReasonToolFailed, "%s did not work", what)
	case "tool-slow":
		r.p.cross(place+" slow", 10*time.Second, 2*time.Minute)
	case "tool-hangs":
		interrupt := r.interrupt
		if r.ignoresInterrupt {
			interrupt = nil
		}
		select {
		case <-interrupt:
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
	r.ignoresInterrupt = w.fault(r.p.name+" signals", "tool-ignores-interrupt") != ""
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
		if r.interrupted() && w.plan.saves > 0 {
			r.p.cross("save", w.plan.saves, w.plan.saves)
		}
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

// fork starts a child process that outlives the tool and ignores signals.
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

// attribute returns the attribute of a resource. It depends only on the variables with which the
// tool creates or changes the resource.
func attribute(vars map[string]events.SpecVar) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		fmt.Fprintf(h, "%s=%s\n", name, vars[name].Value)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// plan compares the existing resources with the wanted resources. It returns the saved plan and
// the description of the plan.
func (r *run) plan() ([]byte, *wire.Plan, error) {
	w := r.p.w
	began := w.ledger.planStarts(r)
	// Read the resources from the cloud into the state, so that the plan creates missing
	// resources again, and corrects resources that differ.
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
	return raw, &wire.Plan{Digest: digest(raw), NoOp: noOp, Changes: changes, ChangeSet: &changeset.Set{V: changeset.Version, Changes: []changeset.Change{}}}, nil
}

// apply executes a saved plan.
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
			r.st.Resources[name] = r.p.w.ledger.create(r, name, want)
		}
		r.say("%s: changed", name)
		if time.Since(saves) > 20*time.Second { // OpenTofu has the same interval
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
