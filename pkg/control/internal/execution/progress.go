package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/control/internal/state"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// advance applies an event to a deployment, with all consequences in the same commit:
// jobs are created and canceled, and when the deployment ends, the next deployment in
// the install's queue begins.
func advance(tx *kernel.Tx, inst *store.Stored[store.Install], r store.Stored[store.Deployment], e deployment.Event) (store.Stored[store.Deployment], error) {
	return advanceBy(tx, inst, r, e, func(d store.Deployment, cmd deployment.Command) (deployment.Event, error) {
		return carryOut(tx, inst, d, cmd)
	})
}

// advanceBy is advance with a function that executes the deployment's commands.
func advanceBy(tx *kernel.Tx, inst *store.Stored[store.Install], r store.Stored[store.Deployment], e deployment.Event,
	carryOut func(store.Deployment, deployment.Command) (deployment.Event, error)) (store.Stored[store.Deployment], error) {
	todo := []deployment.Event{e}
	for len(todo) > 0 {
		next, cmds, err := deployment.Apply(r.V.Deployment, todo[0], tx.Now)
		if err != nil {
			return r, err
		}
		todo = todo[1:]
		r.V.Deployment = next
		for _, cmd := range cmds {
			follow, err := carryOut(r.V, cmd)
			if err != nil {
				return r, err
			}
			if follow != nil {
				todo = append(todo, follow)
			}
		}
	}
	r.V.Changed = tx.Now
	tx.PutDeployment(r)
	if r.V.State.Final() {
		tx.Drop(state.PlanKeys(r.V)...)
		if err := settle(tx, inst, r.V); err != nil {
			return r, err
		}
		return r, freeInstall(tx, inst, r.V.ID)
	}
	return r, nil
}

// freeInstall removes an ended deployment from its install, and begins the next one.
func freeInstall(tx *kernel.Tx, inst *store.Stored[store.Install], id fairlead.DeploymentID) error {
	inst.V.Queue = slices.DeleteFunc(slices.Clone(inst.V.Queue), func(q fairlead.DeploymentID) bool { return q == id })
	if inst.V.Active != id {
		tx.PutInstall(*inst) // it was canceled while it was queued
		return nil
	}
	inst.V.Active = ""
	if len(inst.V.Queue) == 0 {
		tx.PutInstall(*inst)
		return nil
	}
	inst.V.Active, inst.V.Queue = inst.V.Queue[0], inst.V.Queue[1:]
	tx.PutInstall(*inst)
	next, err := tx.Store.Deployment(tx.Ctx, inst.V.Active)
	if err != nil {
		return err
	}
	return beginNext(tx, inst, next)
}

// beginNext begins the deployment that is the first of its install now, unless it waits for
// the customer's stack.
func beginNext(tx *kernel.Tx, inst *store.Stored[store.Install], next store.Stored[store.Deployment]) error {
	if next.V.State != deployment.Queued {
		return kernel.ErrTorn // it was canceled, or it began, after its install was read
	}
	asked := slices.Clone(next.V.Nodes)
	// The graph was computed when the deployment was queued. Now the results of the
	// deployment before it are known.
	err := refill(tx, inst.V, &next.V.Deployment)
	if err == nil && len(next.V.Nodes) > 0 {
		_, err = runners.ServingRunner(tx, inst.V)
	}
	var lacks StackLacks
	if err == nil {
		lacks, err = stackLacks(tx, inst.V, next.V.Deployment)
	}
	if lacks.any() {
		return nil // it stays queued, as the first of its install; BeginGranted begins it
	}
	switch fairlead.KindOf(err) {
	case "":
		_, err = advance(tx, inst, next, deployment.Begin{})
		return err
	case fairlead.KindInternal, fairlead.KindUnavailable:
		return err // a temporary or internal error; the step repeats its report
	}
	next.V.Nodes = asked
	return refuseDeployment(tx, inst, next, err)
}

// StackLacks is what a deployment waits for in the customer's stack.
type StackLacks struct {
	Actions []string                 // its version declares them, and the stack does not grant them
	States  *runners.ElsewhereStates // nil: the stack has the states of the install
}

func (l StackLacks) any() bool { return len(l.Actions) > 0 || l.States != nil }

// stackLacks returns what a deployment waits for. A teardown waits for no actions.
func stackLacks(tx *kernel.Tx, inst store.Install, d deployment.Deployment) (out StackLacks, err error) {
	s, err := runners.StackOf(tx, inst)
	if err != nil {
		return out, err
	}
	if out.States, err = runners.StatesElsewhere(tx, inst, s); err != nil || d.Kind == deployment.Teardown {
		return out, err
	}
	out.Actions, err = catalog.MissingActions(tx, s, d.Version)
	return out, err
}

// LacksInStack returns what the queued deployment waits for in the customer's stack; zero if
// it does not wait for the stack.
func LacksInStack(tx *kernel.Tx, inst store.Install, d deployment.Deployment) (StackLacks, error) {
	if d.State != deployment.Queued || inst.Active != d.ID {
		return StackLacks{}, nil
	}
	return stackLacks(tx, inst, d)
}

// BeginGranted begins the deployment of the runner's install that waited for the customer's
// stack, if the stack has what it lacked. The runner's stack was reported
// before.
func (ex *Execution) BeginGranted(ctx context.Context, of runners.StackInstall) error {
	waits := func(tx *kernel.Tx) (inst store.Stored[store.Install], d store.Stored[store.Deployment], err error) {
		inst, err = store.Optional(tx.Store.Install(tx.Ctx, of.Org, of.Name))
		if err == nil && inst.V.ID == of.ID && inst.V.Active != "" {
			d, err = tx.Store.Deployment(tx.Ctx, inst.V.Active)
		}
		return inst, d, err
	}
	// Nearly all sessions find no such deployment, so they need no transaction.
	if _, d, err := waits(ex.Reading(ctx)); err != nil || d.V.State != deployment.Queued {
		return err
	}
	return ex.Transact(ctx, "begin the deployment of install "+of.Name+" that waits for its stack", func(tx *kernel.Tx) error {
		inst, d, err := waits(tx)
		if err != nil || d.V.State != deployment.Queued {
			return err
		}
		tx.CheckInstall(inst)
		return beginNext(tx, &inst, d)
	})
}

// refuseDeployment ends a deployment that cannot begin, with the reason. It does not
// return the reason as an error, because the commit also records the end of the previous
// deployment. The report of the previous deployment's last step must not fail.
func refuseDeployment(tx *kernel.Tx, inst *store.Stored[store.Install], r store.Stored[store.Deployment], why error) error {
	if len(r.V.Nodes) == 0 { // without a component that could fail, the deployment would count as succeeded
		_, err := advance(tx, inst, r, deployment.Cancel{Reason: fairlead.CodeOf(why).Reason()})
		return err
	}
	_, err := advanceBy(tx, inst, r, deployment.Begin{}, func(_ store.Deployment, cmd deployment.Command) (deployment.Event, error) {
		return deployment.Unplannable{Component: cmd.Component, Reason: fairlead.CodeOf(why).Reason(), Message: why.Error()}, nil
	})
	return err
}

// refill computes the graph of a queued deployment again. A retry keeps its graph, with
// the results that it took over.
func refill(tx *kernel.Tx, inst store.Install, d *deployment.Deployment) error {
	if d.RetryOf != "" {
		return nil
	}
	d.Nodes = nil
	return fillNodes(tx, inst, d, d.Version)
}

// carryOut executes a command of a deployment, and returns the resulting event for the
// deployment.
func carryOut(tx *kernel.Tx, stored *store.Stored[store.Install], d store.Deployment, cmd deployment.Command) (deployment.Event, error) {
	if cmd.Cancel != "" {
		return cancelJob(tx, cmd.Cancel)
	}
	inst, err := placeOf(tx, stored, d, cmd)
	n := d.Node(cmd.Component)
	if err == nil && cmd.Operation == job.OpPlan && n.State == deployment.Planning && n.MayBeUpToDate() && !d.Refresh {
		same := false
		if same, err = upToDate(tx, inst, d, cmd.Component); same {
			return deployment.UpToDate{Component: cmd.Component}, nil
		}
	}
	var vars map[string]appspec.Outline
	if err == nil {
		vars, err = knownVars(tx, inst, d, cmd)
	}
	if err != nil {
		return unplannable(d, cmd, err)
	}
	if size := sizeOfVars(vars); size > catalog.MaxVars {
		return varsTooLarge(cmd.Component, size), nil
	}
	runner, err := runners.ServingRunner(tx, inst)
	if err != nil {
		return nil, err
	}
	j := store.Job{Job: job.New(fairlead.JobID(tx.IDs(fairlead.PrefixJob)), cmd.Operation, tx.Now),
		InstallName: inst.Name, RunnerName: runner.V.Name, Shared: runner.V.Shared(), Version: d.Version,
		PlanJob: cmd.PlanJob, PlanDigest: cmd.Digest, Signature: cmd.Signature}
	j.Org, j.Runner, j.Install, j.Deployment, j.Rank = d.Org, runner.V.ID, inst.ID, d.ID, rank(d)
	t, _ := component.Of(n.Type)
	j.Component, j.Plugin, j.Size, j.Image, j.NotAfter = cmd.Component, t.Name, n.Size, catalog.ImageOf(vars), cmd.Before
	if cmd.Operation == job.OpApply {
		j.Role = n.Role
	}
	if n.Run != nil {
		if err := ofRun(tx, &j, n.Run); err != nil {
			return nil, err
		}
	}
	if n.Destroy {
		k, err := tx.Component(inst.ID, cmd.Component)
		if err != nil {
			return nil, err
		}
		j.Version = k.V.Version // a component is destroyed with the configuration that created it
	}
	if cmd.Operation.Mutates() && n.Run == nil {
		if size, err := markUnknown(tx, inst, d, j); err != nil {
			return unplannable(d, cmd, err)
		} else if size > 0 {
			return varsTooLarge(cmd.Component, size), nil
		}
	}
	NewJob(tx, j, runner.V)
	return deployment.JobStarted{Component: cmd.Component, Operation: cmd.Operation, Job: j.ID}, nil
}

// rankOfComponent is how much later a deployment counts as created for each component that has not ended.
const rankOfComponent = 10 * time.Second

// rank returns the place of a deployment's next job in the queue of its runner. Of many deployments at once, the one that was created
// first ends first, instead of all of them at the end; a small one does not wait for the large ones that were created shortly before it.
// The rank is never later than the creation by more than the size, so that no deployment waits forever.
func rank(d store.Deployment) time.Time {
	left := 0
	for _, n := range d.Nodes {
		if !n.State.Final() {
			left++
		}
	}
	return d.Created.Add(time.Duration(left) * rankOfComponent)
}

// unplannable returns the event of a command that cannot be executed because of its values, or any other error itself.
func unplannable(d store.Deployment, cmd deployment.Command, err error) (deployment.Event, error) {
	if problem, ok := errors.AsType[*appspec.UnresolvedError](err); ok {
		return deployment.Unplannable{Component: cmd.Component, Skip: d.PlanOnly, Reason: fairlead.ReasonNeedsOutputs,
			Message: unplanned(d.Deployment, problem)}, nil
	}
	if unmade, ok := errors.AsType[*unmadeRunner](err); ok {
		return deployment.Unplannable{Component: cmd.Component, Skip: d.PlanOnly, Reason: fairlead.ReasonNeedsOutputs, Message: unmade.Error()}, nil
	}
	if fairlead.KindOf(err) == fairlead.KindInvalid || slices.Contains([]fairlead.Code{fairlead.CodeVersionAltered, fairlead.CodeRunnerExists, fairlead.CodeStateStorageChanged}, fairlead.CodeOf(err)) {
		return deployment.Unplannable{Component: cmd.Component, Reason: fairlead.CodeOf(err).Reason(), Message: err.Error()}, nil
	}
	return nil, err
}

// upToDate reports whether the component needs no plan. If so, it records the deployment's
// version as that of the component, as a plan without changes does.
func upToDate(tx *kernel.Tx, inst store.Install, d store.Deployment, component string) (bool, error) {
	k, same, err := catalog.UpToDate(tx, inst, d.Version, component)
	if err != nil || !same || d.PlanOnly || k.V.Version == d.Version {
		return same, err
	}
	v, err := catalog.ReadVersion(tx, d.Version)
	if err != nil {
		return false, err
	}
	ofVersion(&k, v)
	tx.PutComponent(k)
	return true, nil
}

// sizeOfVars returns the number of bytes of the variables as JSON, as far as it is known.
func sizeOfVars(vars map[string]appspec.Outline) int {
	size := 0
	for name, v := range vars {
		size += len(name) + v.Size
	}
	return size
}

func varsTooLarge(component string, size int) deployment.Event {
	return deployment.Unplannable{Component: component, Reason: fairlead.ReasonVarsTooLarge,
		Message: fmt.Sprintf("the variables of component %s have %d bytes; a component may have %d", component, size, catalog.MaxVars)}
}

// unplanned returns why a component has no plan. A plan-only deployment does not know
// the outputs of components that it plans or leaves unplanned.
func unplanned(d deployment.Deployment, problem *appspec.UnresolvedError) string {
	if r := problem.Reference; d.PlanOnly && r.Namespace == appspec.Components {
		if n := d.Node(r.Name); n != nil && n.State != deployment.Unchanged {
			return deployment.NotPlanned(r.Name)
		}
	}
	return problem.Error()
}

// NewJob puts a job that is queued on the runner at once.
func NewJob(tx *kernel.Tx, j store.Job, r store.Runner) store.Job {
	declared := j.Terms.Timeout // of a run of an action
	if j.Terms = runners.TermsFor(tx.Terms, r); declared > 0 {
		j.Terms.Timeout = declared
	}
	j.Actors = tx.Made()
	tx.PutJob(store.Stored[store.Job]{V: j})
	tx.Wake(j)
	return j
}

// markUnknown marks a component as unknown before a job changes it. For an apply it
// also stores the variables, which a later destroy needs. tooLarge is that of catalog.KeepMade.
func markUnknown(tx *kernel.Tx, inst store.Install, d store.Deployment, j store.Job) (tooLarge int, err error) {
	k, err := tx.Component(inst.ID, j.Component)
	if err != nil {
		return 0, err
	}
	if k.Version == 0 { // the first record: an apply that does not succeed must not end the doubt
		k.V.Restored = inst.Restored
	}
	k.V.State, k.V.Deployment, k.V.Base = store.Unknown, d.ID, nil
	if j.Operation == job.OpApply {
		v, err := catalog.ReadVersion(tx, j.Version)
		if err != nil {
			return 0, err
		}
		if tooLarge, err := madeFrom(tx, &k, inst, v); err != nil || tooLarge > 0 {
			return tooLarge, err
		}
	}
	tx.PutComponent(k)
	return 0, nil
}

// cancelJob cancels a job. If the job had not started, it ends at once, and
// cancelJob returns its end as an event for the deployment.
func cancelJob(tx *kernel.Tx, id fairlead.JobID) (deployment.Event, error) {
	r, err := tx.Store.Job(tx.Ctx, id)
	if err != nil {
		return nil, err
	}
	if r.V.State.Final() {
		return nil, nil
	}
	r, err = applyJob(tx, r, job.Event{Kind: job.Cancel, Reason: fairlead.ReasonCanceled, By: kernel.Actor(tx.Ctx)})
	if err != nil || !r.V.State.Final() {
		return nil, err
	}
	return jobEnded(r.V), nil
}

// jobEnded returns the event that reports the end of a job to its deployment.
func jobEnded(j store.Job) deployment.Event {
	e := deployment.JobEnded{Job: j.ID, State: j.State, Reason: j.Reason, Message: j.Message}
	if j.Plan != nil {
		changes := j.Plan.Changes
		e.NoOp, e.Changes, e.Digest, e.NeedsSignature = j.Plan.NoOp, &changes, j.Plan.Digest, j.Plan.NeedsSignature
	}
	return e
}

// advanceDeployment advances the deployment of a job that has ended. A job without a
// deployment changes nothing.
func advanceDeployment(tx *kernel.Tx, j store.Job) error {
	if j.State.Final() && j.Operation == job.OpMigrateState {
		return state.EndMove(tx, j)
	}
	if !j.State.Final() || j.Deployment == "" {
		return nil
	}
	if j.State == job.Lost && j.Component != "" && j.Run == nil {
		k, err := tx.Component(j.Install, j.Component)
		if err != nil {
			return err
		}
		k.V.Lost = j.ID
		tx.PutComponent(k)
	}
	d, err := tx.Store.Deployment(tx.Ctx, j.Deployment)
	if err != nil {
		return err
	}
	inst, err := tx.Store.Install(tx.Ctx, j.Org, j.InstallName)
	if err != nil {
		return err
	}
	_, err = advance(tx, &inst, d, jobEnded(j))
	return err
}
