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

// MigrateState queues a job that copies the states of an install to where its
// runner keeps states by now. The install goes on with the old storage until the
// job has read everything back, and with the new one from then on; nothing else
// runs on it meanwhile. After a failure it is as it was, and the migration may be
// repeated.
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
		Hint: "A state is moved after its runner was told to keep states elsewhere ({runner.configure}), or to another runner ({install.move})."}
}

// moveStates makes the job that copies the install's states to where the runner keeps
// states, and notes on the install that it is under way. The caller writes the
// install.
func moveStates(tx *kernel.Tx, inst *store.Stored[store.Install], id fairlead.JobID, r store.Stored[store.Runner], to placement.Binding) (store.Job, error) {
	in := inst.V
	if in.Moving != nil && in.Moving.Job == id { // our own commit, whose answer was unclear
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
		tx.CheckRunner(r) // it must be there when the states are
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

// movable names the components whose states are to be moved, unless somebody may
// still be writing one.
func movable(tx *kernel.Tx, in store.Install) ([]string, error) {
	comps, err := tx.Components(in.ID)
	if err != nil {
		return nil, err
	}
	for _, k := range comps {
		if k.V.Lost != "" {
			return nil, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateUnknown,
				Message: fmt.Sprintf("the job %s of component %s was lost, and its tool may still save what it did", k.V.Lost, k.V.Name),
				Hint:    fmt.Sprintf("Deploy install %s first, so that a plan shows what there is; its runner must keep states where they are for that.", in.Name)}
		}
	}
	return runners.StatefulComponents(tx, in.ID)
}

// atRunner reports whether a storage can be reached from where a runner's jobs
// are, and from nowhere else.
func atRunner(kind string) bool {
	return kind == string(runnerspec.LocalState) || kind == string(runnerspec.KubernetesState)
}

// mover is the runner that copies the states of an install to where another
// keeps them: the one that reaches both.
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
