package runners

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// Placeable converts a runner to the form that package placement uses.
func Placeable(r store.Runner) placement.Runner {
	p := placement.Runner{ID: r.ID, Name: r.Name, Org: r.Org, Scope: placement.Group, Group: r.Group, Mode: r.VendorMode(), Storage: StorageOf(r)}
	switch {
	case r.Shared():
		p.Scope = placement.Shared
	case r.Install != "":
		p.Scope, p.Install, p.Group = placement.Own, r.Install, ""
	}
	return p
}

// PlacedInstall converts an install to the form that package placement uses.
func PlacedInstall(tx *kernel.Tx, in store.Install) (placement.Install, error) {
	p := placement.Install{ID: in.ID, Name: in.Name, Org: in.Org, Group: in.Group, App: in.App, Labels: placement.LabelsOf(in.Labels), Names: in.RunnerID}
	if in.Runner != "" && in.RunnerID == "" { // created when installs stored only the runner's name
		r, err := FindRunner(tx, in.Org, in.Runner)
		if err != nil {
			return p, err
		}
		p.Names = r.V.ID
	}
	if in.Bound == nil {
		return p, nil
	}
	bound := in.Bound.Binding
	p.Bound = &bound
	names, err := StatefulComponents(tx, in)
	p.HasState = len(names) > 0
	return p, err
}

// StatefulComponents names the components whose state the storage of in.Bound must keep: those in the sandbox of the
// install, or all others. A
// component that is known to be absent is left out: after a destroy its state is usually
// empty. But if a person pushed a state after the destroy, the component is included.
func StatefulComponents(tx *kernel.Tx, in store.Install) ([]string, error) {
	names, absent, elsewhere := map[string]bool{}, map[string]bool{}, map[string]bool{}
	comps, err := tx.Components(in.ID)
	if err != nil {
		return nil, err
	}
	for _, k := range comps {
		if elsewhere[k.V.Name] = k.V.InSandbox != in.IsSandbox(); elsewhere[k.V.Name] {
			continue
		}
		if absent[k.V.Name] = k.V.State == store.Absent; !absent[k.V.Name] && k.V.TypeOf().StateFile != "" {
			names[k.V.Name] = true
		}
	}
	heads, err := tx.Store.States(tx.Ctx, in.ID)
	if err != nil {
		return nil, err
	}
	for _, h := range heads {
		pushed := h.V.Pushed != nil && h.V.Pushed.Blob == h.V.Blob
		if h.V.Blob != "" && !elsewhere[h.V.Component] && (!absent[h.V.Component] || pushed) {
			names[h.V.Component] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// Choice holds the rules and the runners from which placement chooses.
type Choice struct {
	Rules   []placement.Rule
	Runners []placement.Runner
	Records map[fairlead.RunnerID]store.Stored[store.Runner]
}

// Candidates reads the rules of the org, the runners of the org, and the shared runners.
// It leaves out runners that are in deletion, and those in a sandbox.
func Candidates(tx *kernel.Tx, org fairlead.OrgID) (Choice, error) {
	out := Choice{Records: map[fairlead.RunnerID]store.Stored[store.Runner]{}}
	rules, err := tx.Store.AllRunnerRules(tx.Ctx, org)
	if err != nil {
		return out, err
	}
	for _, r := range rules {
		out.Rules = append(out.Rules, r.V.Rule)
	}
	for _, of := range []fairlead.OrgID{org, ""} {
		runners, err := tx.Store.AllRunners(tx.Ctx, of)
		if err != nil {
			return out, err
		}
		for _, r := range runners {
			if !r.V.Leaving && !r.V.InSandbox {
				out.Runners = append(out.Runners, Placeable(r.V))
				out.Records[r.V.ID] = r
			}
		}
	}
	return out, nil
}

// WouldServe returns the runner that the install is bound to, or that it would be bound to by a deployment now. ok is false
// if none serves it.
func WouldServe(tx *kernel.Tx, in store.Install) (r store.Runner, ok bool, err error) {
	if in.Bound != nil {
		r, err := store.Optional(ServingRunner(tx, in))
		return r.V, r.V.ID != "", err
	}
	placed, err := PlacedInstall(tx, in)
	if err != nil {
		return store.Runner{}, false, err
	}
	from, err := Candidates(tx, in.Org)
	if err != nil {
		return store.Runner{}, false, err
	}
	b, err := placement.Bind(placed, from.Rules, from.Runners)
	if err != nil {
		return store.Runner{}, false, nil // the first deployment reports it
	}
	return from.Records[b.Runner].V, true, nil
}

// ServingRunner returns the runner of the install's jobs. If this commit binds the
// install to a runner, ServingRunner returns that runner.
func ServingRunner(tx *kernel.Tx, in store.Install) (store.Stored[store.Runner], error) {
	if in.Bound == nil && in.Runner == "" {
		return store.Stored[store.Runner]{}, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeNoRunner,
			Message: fmt.Sprintf("install %s has no runner yet; its first deployment chooses one", in.Name),
			Hint:    "{install.set-runner} names one; {runner.explain} shows which one it would be.",
			Args:    fairlead.Args{Install: in.Name}}
	}
	if in.Bound == nil {
		return FindRunner(tx, in.Org, in.Runner)
	}
	if tx.Given != nil && in.Bound.Runner == tx.Given.V.ID {
		return *tx.Given, nil
	}
	r, err := tx.Store.Runner(tx.Ctx, in.Bound.Org, in.Bound.Name)
	if err == nil && r.V.ID != in.Bound.Runner {
		err = fairlead.NotFound(fairlead.CodeRunnerNotFound, string(in.Bound.Runner)) // another runner was created later under the same name
	}
	return r, err
}

// StorageKind returns the kind of storage that holds the install's state.
func StorageKind(tx *kernel.Tx, in store.Install) (string, error) {
	if in.Bound != nil {
		return in.Bound.Storage.Kind, nil
	}
	r, err := ServingRunner(tx, in)
	return r.V.Storage, err
}

// BindRunner binds the install to a runner for its deployments. It keeps an existing
// binding. Without a binding, the rules decide in the commit of the first deployment.
func BindRunner(tx *kernel.Tx, inst *store.Stored[store.Install]) error {
	if inst.V.Bound != nil {
		return rebindRunner(tx, inst)
	}
	in, err := PlacedInstall(tx, inst.V)
	if err != nil {
		return err
	}
	from, err := Candidates(tx, in.Org)
	if err != nil {
		return err
	}
	for {
		b, err := placement.Bind(in, from.Rules, from.Runners)
		if err != nil {
			return err
		}
		gone, err := GiveRunner(tx, inst, from.Records[b.Runner], b)
		if !gone || err != nil {
			return err
		}
		// The runner's deletion began after the runner was read: decide again without it.
		from.Runners = slices.DeleteFunc(from.Runners, func(r placement.Runner) bool { return r.ID == b.Runner })
	}
}

// rebindRunner checks the install's binding against the runner's current record.
func rebindRunner(tx *kernel.Tx, inst *store.Stored[store.Install]) error {
	r, err := ServingRunner(tx, inst.V)
	var there []placement.Runner
	switch {
	case err == nil:
		there = []placement.Runner{Placeable(r.V)}
	case fairlead.KindOf(err) != fairlead.KindNotFound:
		return err
	}
	var in placement.Install
	if len(there) == 1 && there[0].Storage == inst.V.Bound.Storage {
		// The storage is unchanged, so it does not matter whether there is a state. Not
		// reading the states saves two queries for each deployment.
		bound := inst.V.Bound.Binding
		in = placement.Install{ID: inst.V.ID, Name: inst.V.Name, Org: inst.V.Org, Group: inst.V.Group, App: inst.V.App, Bound: &bound}
	} else if in, err = PlacedInstall(tx, inst.V); err != nil {
		return err
	}
	b, err := placement.Bind(in, nil, there)
	if err != nil || b == inst.V.Bound.Binding {
		return err
	}
	gone, err := GiveRunner(tx, inst, r, b)
	if gone && err == nil {
		err = Leaving(r.V)
	}
	return err
}

// GiveRunner binds the install to the runner. It returns gone as true, and binds nothing,
// if the runner was deleted or is in deletion.
//
// GiveRunner notes the use before its last read of the runner. A deletion marks the
// runner before its last read of the uses. So GiveRunner sees the mark, or the deletion
// sees the use. A single commit with a check of the runner would cost each first
// deployment three more write units.
func GiveRunner(tx *kernel.Tx, inst *store.Stored[store.Install], r store.Stored[store.Runner], b placement.Binding) (gone bool, err error) {
	if r.Version == 0 {
		return false, fmt.Errorf("bind install %s: runner %s was chosen, but its record was not read", inst.V.Name, b.Runner)
	}
	if bound := inst.V.Bound; b.Runner != inst.V.RunnerID && (bound == nil || bound.Runner != b.Runner) {
		var note store.Tx
		note.PutRunnerUse(b.Runner, inst.V, tx.Now)
		if err := tx.Commit(tx.Ctx, &note); err != nil {
			return false, fmt.Errorf("note that install %s uses runner %s: %w", inst.V.Name, r.V.Name, err)
		}
		now, err := tx.Store.Runner(tx.Ctx, r.V.Org, r.V.Name)
		if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && (now.V.Leaving || now.V.ID != r.V.ID) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	if old := inst.V.Bound; old != nil && old.Runner != b.Runner && old.Runner != inst.V.RunnerID {
		tx.DropRunnerUse(old.Runner, inst.V.ID)
	}
	tx.Given = &r
	config, err := StorageJSON(r.V)
	if err != nil {
		return false, err
	}
	inst.V.Bound = &store.Binding{Binding: b, Org: r.V.Org, Name: r.V.Name, At: tx.Now, State: config}
	return false, nil
}

// Explained is a placement decision with all runners and rules that were considered.
type Explained struct {
	placement.Explanation
	Bound  string  // name of the runner that the install is bound to; "" before its first deployment
	Serves *Runner // runs the install's jobs: the bound runner, or else the one that the rules choose; nil: none
}

// ExplainInstall returns the runner that the current rules choose for the install, and
// why each other runner was not chosen.
func (f *Fleet) ExplainInstall(ctx context.Context, org fairlead.OrgID, name string) (Explained, error) {
	inst, err := f.Store.Install(ctx, org, name)
	if err != nil {
		return Explained{}, err
	}
	tx := f.Reading(ctx)
	in, err := PlacedInstall(tx, inst.V)
	if err != nil {
		return Explained{}, err
	}
	from, err := Candidates(tx, org)
	if err != nil {
		return Explained{}, err
	}
	out := Explained{Explanation: placement.Explain(in, from.Rules, from.Runners)}
	if inst.V.Bound != nil {
		out.Bound = inst.V.Bound.Name
	}
	if name = cmp.Or(out.Bound, out.Name); name == "" {
		return out, nil
	}
	r, err := f.Runner(ctx, org, name)
	if err != nil {
		if fairlead.KindOf(err) == fairlead.KindNotFound {
			return out, nil // the runner was deleted
		}
		return Explained{}, err
	}
	out.Serves = &r
	return out, nil
}

// RunnerOf returns the name of the runner that the install is bound to. For an install
// without a binding it returns the runner that the install names, or "" if rules choose
// the runner.
func RunnerOf(in store.Install) string {
	if in.Bound != nil {
		return in.Bound.Name
	}
	return in.Runner
}
