package control

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/execution"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// MigrateState queues a job that copies the states of an install to its runner's
// current storage. The job then reads every copy back. The install uses the old storage
// until the job has succeeded, and after that the new storage. No other job of the install
// runs meanwhile. A failed migration does not change which storage the install uses, and
// can be repeated.
func (c *Control) MigrateState(ctx context.Context, org fairlead.OrgID, install, key string) (Job, error) {
	id := fairlead.JobID(c.IDs(fairlead.PrefixJob))
	var out Job
	err := c.Transact(ctx, "migrate the state of install "+install, func(tx *kernel.Tx) error {
		made, err := tx.Seen(kernel.Once{Org: org, Route: "migrate-state " + install, Key: key}, string(id))
		if err != nil || made != "" {
			if err == nil {
				out, err = c.Job(ctx, org, fairlead.JobID(made))
			}
			return err
		}
		inst, err := c.Store.Install(ctx, org, install)
		if err != nil {
			return err
		}
		if inst.V.Bound == nil {
			return nothingToMove("install %s was never deployed, and has no state", install)
		}
		r, err := runners.ServingRunner(tx, inst.V)
		if err != nil {
			return err
		}
		to := inst.V.Bound.Binding
		to.Storage = runners.StorageOf(r.V)
		j, err := moveStates(tx, &inst, id, r, to)
		if out = execution.JobOf(j); err == nil {
			tx.PutInstall(inst)
		}
		return err
	})
	return out, err
}

func nothingToMove(format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeNothingToMove, Message: fmt.Sprintf(format, args...),
		Hint: "First configure another state storage for the runner ({runner.configure}), or move the install to another runner ({install.move})."}
}

// moveStates creates the job that copies the install's states to the runner's storage,
// and records the job on the install. The caller must put the install into the commit.
func moveStates(tx *kernel.Tx, inst *store.Stored[store.Install], id fairlead.JobID, r store.Stored[store.Runner], to placement.Binding) (store.Job, error) {
	in := inst.V
	if in.Moving != nil && in.Moving.Job == id { // our own earlier commit, whose outcome was unclear
		j, err := tx.Store.Job(tx.Ctx, id)
		return j.V, err
	}
	if err := catalog.NotMoving(in); err != nil {
		return store.Job{}, err
	}
	if in.Active != "" {
		return store.Job{}, catalog.Busy(in)
	}
	if to.Storage == in.Bound.Storage {
		return store.Job{}, nothingToMove("the state of install %s is in %s already, where runner %s keeps states", in.Name, to.Storage, r.V.Name)
	}
	names, err := movable(tx, in)
	if err != nil {
		return store.Job{}, err
	}
	if len(names) == 0 {
		return store.Job{}, nothingToMove("install %s has no state: its next deployment keeps it in %s", in.Name, to.Storage)
	}
	by, err := mover(tx, in, r, to.Storage)
	if err != nil {
		return store.Job{}, err
	}
	if r.V.ID != in.Bound.Runner {
		tx.CheckRunner(r) // the runner must still exist in this commit
		tx.PutRunnerUse(r.V.ID, in, tx.Now)
	}
	config, err := runners.StorageJSON(r.V)
	if err != nil {
		return store.Job{}, err
	}
	inst.V.Moving = &store.Moving{Job: id, To: store.Binding{Binding: to, Org: r.V.Org, Name: r.V.Name, State: config}, Components: names}
	j := store.Job{Job: job.New(id, job.OpMigrateState, tx.Now), InstallName: in.Name, RunnerName: by.V.Name, Shared: by.V.Shared()}
	j.Org, j.Install, j.Runner, j.Plugin = in.Org, in.ID, by.V.ID, component.ThatDoes(job.OpMigrateState).Name
	return execution.NewJob(tx, j, by.V), nil
}

// movable names the components whose states must move. It returns an error if a tool
// may still write one of the states.
func movable(tx *kernel.Tx, in store.Install) ([]string, error) {
	comps, err := tx.Components(in.ID)
	if err != nil {
		return nil, err
	}
	for _, k := range comps {
		if k.V.Doubtful() {
			why := fmt.Sprintf("the job %s of component %s was lost, and its tool may still save its state", k.V.Lost, k.V.Name)
			if k.V.Lost == "" {
				why = fmt.Sprintf("the control plane was restored from a backup, and a job of component %s may still save its state", k.V.Name)
			}
			return nil, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateUnknown, Message: why,
				Hint: fmt.Sprintf("Deploy install %s first, so that a plan shows the current resources. For that, the runner must still use the old state storage.", in.Name)}
		}
	}
	return runners.StatefulComponents(tx, in)
}

// atRunner reports whether only the runner's own jobs can reach a storage of this kind.
func atRunner(kind string) bool {
	return kind == string(runnerspec.LocalState) || kind == string(runnerspec.KubernetesState)
}

// mover returns the runner that copies the states of an install to another runner's
// storage: the runner that reaches both storages. It returns an error if no runner
// reaches both storages.
func mover(tx *kernel.Tx, in store.Install, to store.Stored[store.Runner], storage placement.Storage) (store.Stored[store.Runner], error) {
	if to.V.ID == in.Bound.Runner || !atRunner(in.Bound.Storage.Kind) {
		return to, nil
	}
	if atRunner(storage.Kind) {
		return to, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateOutOfReach,
			Message: fmt.Sprintf("the state of install %s is in %s, and runner %s keeps states in %s: no runner reaches both", in.Name, in.Bound.Storage, to.V.Name, storage),
			Hint:    fmt.Sprintf("Move it in two steps: let runner %s keep states in http or a bucket, {install.migrate-state}, and then refresh the runner.", in.Bound.Name),
			Args:    fairlead.Args{Install: in.Name}}
	}
	return runners.ServingRunner(tx, in)
}
