package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/events"
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
func (c *Control) MigrateState(ctx context.Context, org fairlead.OrgID, install, key string) (store.Job, error) {
	id := fairlead.JobID(c.IDs(fairlead.PrefixJob))
	var out store.Job
	err := c.transact(ctx, "migrate the state of install "+install, func(u *unit) error {
		made, err := u.seen(Once{Org: org, Route: "migrate-state " + install, Key: key}, string(id))
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
		r, err := c.runnerOf(ctx, inst.V)
		if err != nil {
			return err
		}
		to := inst.V.Bound.Binding
		to.Storage = storageOf(r.V)
		out, err = u.move(&inst, id, r, to)
		if err == nil {
			u.PutInstall(inst)
		}
		return err
	})
	return out, err
}

func nothingToMove(format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: "nothing-to-move", Message: fmt.Sprintf(format, args...),
		Hint: "A state is moved after its runner was told to keep states elsewhere (`fairlead runner update NAME`), or to another runner (`fairlead install refresh-runner NAME --migrate-state`)."}
}

// notMoving refuses what must not happen to an install whose states are being
// copied.
func notMoving(in store.Install) error {
	if in.Moving == nil {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: "state-moving",
		Message: fmt.Sprintf("the state of install %s is being moved to %s, by job %s", in.Name, in.Moving.To.Storage, in.Moving.Job),
		Hint:    fmt.Sprintf("Wait for it (`fairlead job logs %s`) or cancel it (`fairlead job cancel %s`).", in.Moving.Job, in.Moving.Job),
		Details: map[string]string{"job": string(in.Moving.Job)}}
}

// move makes the job that copies the install's states to where the runner keeps
// states, and notes on the install that it is under way. The caller writes the
// install.
func (u *unit) move(inst *store.Stored[store.Install], id fairlead.JobID, r store.Stored[store.Runner], to placement.Binding) (store.Job, error) {
	in := inst.V
	if in.Moving != nil && in.Moving.Job == id { // our own commit, whose answer was unclear
		j, err := u.c.Store.Job(u.ctx, id)
		return j.V, err
	}
	if err := notMoving(in); err != nil {
		return store.Job{}, err
	}
	if in.Active != "" {
		return store.Job{}, busy(in)
	}
	if to.Storage == in.Bound.Storage {
		return store.Job{}, nothingToMove("the state of install %s is in %s already, where runner %s keeps states", in.Name, to.Storage, r.V.Name)
	}
	names, err := u.movable(in)
	if err != nil {
		return store.Job{}, err
	}
	if len(names) == 0 {
		return store.Job{}, nothingToMove("install %s has no state: its next deployment keeps it in %s", in.Name, to.Storage)
	}
	by, err := u.mover(in, r, to.Storage)
	if err != nil {
		return store.Job{}, err
	}
	if r.V.ID != in.Bound.Runner {
		u.CheckRunner(r) // it must be there when the states are
		u.PutRunnerUse(r.V.ID, in, u.now)
	}
	config, err := configOf(r.V)
	if err != nil {
		return store.Job{}, err
	}
	inst.V.Moving = &store.Moving{Job: id, To: store.Binding{Binding: to, Org: r.V.Org, Name: r.V.Name, State: config}, Components: names}
	j := store.Job{Job: job.New(id, job.OpMigrateState, u.now), InstallName: in.Name, RunnerName: by.V.Name, Shared: by.V.Shared()}
	j.Org, j.Install, j.Runner, j.Plugin = in.Org, in.ID, by.V.ID, pluginTerraform
	return u.newJob(j, by.V), nil
}

// movable names the components whose states are to be moved, unless somebody may
// still be writing one.
func (u *unit) movable(in store.Install) ([]string, error) {
	comps, err := u.componentsOf(in.ID)
	if err != nil {
		return nil, err
	}
	for _, k := range comps {
		if k.V.Lost != "" {
			return nil, &fairlead.Error{Kind: fairlead.KindConflict, Code: "state-unknown",
				Message: fmt.Sprintf("the job %s of component %s was lost, and its tool may still save what it did", k.V.Lost, k.V.Name),
				Hint:    fmt.Sprintf("Deploy install %s first, so that a plan shows what there is; its runner must keep states where they are for that.", in.Name)}
		}
	}
	return u.stateful(in.ID)
}

// atRunner reports whether a storage can be reached from where a runner's jobs
// are, and from nowhere else.
func atRunner(kind string) bool {
	return kind == string(runnerspec.LocalState) || kind == string(runnerspec.KubernetesState)
}

// mover is the runner that copies the states of an install to where another
// keeps them: the one that reaches both.
func (u *unit) mover(in store.Install, to store.Stored[store.Runner], storage placement.Storage) (store.Stored[store.Runner], error) {
	if to.V.ID == in.Bound.Runner || !atRunner(in.Bound.Storage.Kind) {
		return to, nil
	}
	if atRunner(storage.Kind) {
		return to, &fairlead.Error{Kind: fairlead.KindConflict, Code: "state-out-of-reach",
			Message: fmt.Sprintf("the state of install %s is in %s, and runner %s keeps states in %s: no runner reaches both", in.Name, in.Bound.Storage, to.V.Name, storage),
			Hint:    fmt.Sprintf("Move it in two steps: let runner %s keep states in http or a bucket, `fairlead install migrate-state %s`, and then refresh the runner.", in.Bound.Name, in.Name)}
	}
	return u.c.runnerOf(u.ctx, in)
}

// configOf is the configuration of a runner's state storage, as a binding keeps
// it: the runner may be told to keep states elsewhere, and then nothing else
// says how to reach those that there are.
func configOf(r store.Runner) (json.RawMessage, error) {
	s, err := storageConfig(r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// boundConfig returns the storage in which the states of a binding are.
func boundConfig(b store.Binding) (runnerspec.Storage, error) {
	if len(b.State) > 0 {
		return runnerspec.DecodeStorage(b.State)
	}
	// Made when there were two kinds, of which the binding says all.
	common := runnerspec.StorageCommon{Type: runnerspec.StorageKind(b.Storage.Kind)}
	switch common.Type {
	case runnerspec.HTTPState:
		return &runnerspec.HTTPStorage{StorageCommon: common}, nil
	case runnerspec.LocalState:
		_, path, _ := strings.Cut(b.Storage.Place, ":")
		return &runnerspec.LocalStorage{StorageCommon: common, Path: path}, nil
	}
	return nil, fmt.Errorf("the binding to runner %s does not say how to reach %s", b.Name, b.Storage)
}

// migration completes the spec of a job that copies states.
func (c *Control) migration(ctx context.Context, s events.JobSpec, j store.Job) ([]byte, error) {
	inst, err := c.Store.Install(ctx, j.Org, j.InstallName)
	if err != nil {
		return nil, err
	}
	m := inst.V.Moving
	if inst.V.ID != j.Install || m == nil || m.Job != j.ID || inst.V.Bound == nil {
		return nil, fairlead.Conflict("state-moved", "job %s has nothing to move any more", j.ID)
	}
	from, err := boundConfig(*inst.V.Bound)
	if err != nil {
		return nil, err
	}
	to, err := boundConfig(m.To)
	if err != nil {
		return nil, err
	}
	runner, err := c.Store.Runner(ctx, j.RunnerOrg(), j.RunnerName)
	if err != nil {
		return nil, err
	}
	if s.Env, s.SecretEnv, err = c.environment(ctx, inst.V, runner.V, j); err != nil {
		return nil, err
	}
	for _, name := range m.Components {
		s.Move = append(s.Move, events.MovedState{Component: name, From: *stateRef(from, j.Install, name), To: *stateRef(to, j.Install, name)})
	}
	return c.Signer.Sign(ctx, s)
}

// moved takes up how a migration has ended: with success the install is bound to
// where its states are now, in the same commit. What the control plane kept of
// them itself it drops then; other storages it does not reach, and they keep
// their copies.
func (u *unit) moved(j store.Job) error {
	inst, err := u.c.Store.Install(u.ctx, j.Org, j.InstallName)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return nil
	}
	if err != nil || inst.V.ID != j.Install || inst.V.Moving == nil || inst.V.Moving.Job != j.ID {
		return err
	}
	to, old := inst.V.Moving.To, inst.V.Bound
	inst.V.Moving = nil
	switch {
	case j.State != job.Succeeded:
		if to.Runner != old.Runner && to.Runner != inst.V.RunnerID {
			u.DropRunnerUse(to.Runner, inst.V.ID)
		}
	default:
		to.At = u.now
		inst.V.Bound = &to
		if to.Runner != old.Runner && old.Runner != inst.V.RunnerID {
			u.DropRunnerUse(old.Runner, inst.V.ID)
		}
		if old.Storage.Kind == string(runnerspec.HTTPState) {
			if err := u.dropStates(inst.V.ID); err != nil {
				return err
			}
		}
	}
	u.PutInstall(inst)
	return nil
}

// dropStates drops the states of an install that the control plane keeps. What
// is in the blobs is removed after the commit.
func (u *unit) dropStates(id fairlead.InstallID) error {
	heads, err := u.c.Store.States(u.ctx, id)
	if err != nil {
		return err
	}
	for _, h := range heads {
		u.spent = append(append(u.spent, h.V.Blob), h.V.History...)
		h.V.Blob, h.V.History, h.V.Size, h.V.Serial, h.V.Updated, h.V.Lock = "", nil, 0, 0, u.now, nil
		u.PutState(h)
	}
	return nil
}
