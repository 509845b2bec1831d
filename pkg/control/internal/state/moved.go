package state

import (
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// EndMove records the end of a migration. After a success, the install is bound to the
// new storage in the same commit. If the control
// plane stored the old states itself, it deletes them. It cannot reach other storages, so
// the old copies stay there.
func EndMove(tx *kernel.Tx, j store.Job) error {
	inst, err := store.Optional(tx.Store.Install(tx.Ctx, j.Org, j.InstallName))
	if err != nil || inst.V.ID != j.Install || inst.V.Moving == nil || inst.V.Moving.Job != j.ID {
		return err
	}
	to, old := inst.V.Moving.To, inst.V.Bound
	inst.V.Moving = nil
	switch {
	case j.State != job.Succeeded:
		if to.Runner != old.Runner && to.Runner != inst.V.RunnerID {
			tx.DropRunnerUse(to.Runner, inst.V.ID)
		}
	default:
		to.At = tx.Now
		inst.V.Bound = &to
		if to.Runner != old.Runner && old.Runner != inst.V.RunnerID {
			tx.DropRunnerUse(old.Runner, inst.V.ID)
		}
		if old.Storage.Kind == string(runnerspec.HTTPState) {
			if err := dropStates(tx, inst.V.ID); err != nil {
				return err
			}
		}
	}
	tx.PutInstall(inst)
	return nil
}

// dropStates deletes the states of an install that the control plane stores. Their
// blobs are deleted after the commit.
func dropStates(tx *kernel.Tx, id fairlead.InstallID) error {
	heads, err := tx.Store.States(tx.Ctx, id)
	if err != nil {
		return err
	}
	for _, h := range heads {
		tx.Drop(h.V.Blob)
		tx.Drop(h.V.History...)
		h.V.Blob, h.V.History, h.V.Size, h.V.Serial, h.V.Updated, h.V.Lock = "", nil, 0, 0, tx.Now, nil
		tx.PutState(h)
	}
	return nil
}
