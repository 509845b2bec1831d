package catalog

import (
	"fmt"
	"maps"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// UpToDate returns the component's record if a plan would use what its last deployment
// used: type, source, variables, environment, and the state that the last deployment left.
// Otherwise ok is false. It compares digests and fingerprints, and opens no sealed value. The control plane
// does not know the customer's secrets, so a component that has some is never up to date.
func UpToDate(tx *kernel.Tx, inst store.Install, version fairlead.VersionID, component string) (k store.Stored[store.Component], ok bool, err error) {
	d, err := kernel.Cached(tx, fmt.Sprintf("deployed %s %t", inst.ID, inst.IsSandbox()), func() (*deployed, error) { return deployedOf(tx, inst) })
	if err != nil || d.moved || inst.Bound == nil {
		return k, false, err
	}
	k = d.components[component]
	head := d.states[component]
	switch {
	case k.V.State != store.Present, k.V.Doubtful(), k.V.Base == nil, k.V.EnvDigest == "":
		return k, false, nil
	case !k.V.BoundAt.Equal(inst.Bound.At): // a person may have given up the state with the earlier runner
		return k, false, nil
	case head.Writes != k.V.Base.StateWrites, head.Lock != nil: // a person has pushed a state, or a job has not ended
		return k, false, nil
	}
	now, err := ReadVersion(tx, version)
	if err != nil {
		return k, false, err
	}
	comp, ok := now.Spec.Component(component)
	if !ok || comp.Type != k.V.Type || len(comp.Secrets) > 0 {
		return k, false, nil
	}
	if same, err := sameSource(tx, now, k.V); err != nil || !same {
		return k, false, err
	}
	digests, err := varDigests(tx, inst, now, comp, false)
	if noValue(err) {
		return k, false, nil // the check of the variables before a plan reports it
	}
	return k, err == nil && k.V.EnvDigest == d.env && maps.Equal(k.V.VarDigests, digests), err
}

// deployed is what the comparisons of an install's components share.
type deployed struct {
	moved      bool   // the runner's configuration names another state storage; a job reports this
	env        string // its digest
	components map[string]store.Stored[store.Component]
	states     map[string]store.StateHead // by component
}

func deployedOf(tx *kernel.Tx, inst store.Install) (*deployed, error) {
	runner, err := runners.ServingRunner(tx, inst)
	if err != nil {
		return nil, err
	}
	d := &deployed{moved: inst.Bound != nil && inst.Bound.Storage != runners.StorageOf(runner.V),
		components: map[string]store.Stored[store.Component]{}, states: map[string]store.StateHead{}}
	env, err := variablesFor(tx, inst, runner.V)
	if err != nil {
		return nil, err
	}
	if d.env, err = envDigest(env); err != nil {
		return nil, err
	}
	components, err := tx.Components(inst.ID)
	if err != nil {
		return nil, err
	}
	for _, k := range components {
		d.components[k.V.Name] = k
	}
	states, err := tx.Store.States(tx.Ctx, inst.ID)
	for _, h := range states {
		d.states[h.V.Component] = h.V
	}
	return d, err
}

// sameSource reports whether the component was made from the source that it has in the version.
func sameSource(tx *kernel.Tx, now Version, k store.Component) (bool, error) {
	if k.Version == now.ID {
		return true, nil
	}
	was, err := ReadVersion(tx, k.Version)
	if fairlead.CodeOf(err) == fairlead.CodeVersionAltered {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	before, ok := was.Spec.Component(k.Name)
	after, _ := now.Spec.Component(k.Name)
	return ok && before.Source == after.Source && was.Artifacts[k.Name] == now.Artifacts[k.Name], nil
}

// KeepBase records the state that the component's finished job left. The tool has ended, so
// only a person or another job can write another one.
func KeepBase(tx *kernel.Tx, k *store.Component) error {
	head, err := tx.Store.State(tx.Ctx, k.Install, k.Name)
	if err != nil {
		return err
	}
	k.Base = &store.Base{StateWrites: head.V.Writes}
	return nil
}
