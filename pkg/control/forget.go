package control

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/execution"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// ForgetInstall deletes the records of an install, including its states in http
// storage. Unless abandon is set, it refuses while the install may still have resources
// in the customer's account, because they could not be destroyed afterwards.
//
// The records of an install with many components do not fit into one commit. In this
// case separate commits delete the records of components first. If the process dies
// between these commits, the install still exists, and a repeated request completes the
// deletion.
func (c *Control) ForgetInstall(ctx context.Context, org fairlead.OrgID, name string, abandon bool) error {
	for {
		id, err := c.forget(ctx, org, name, abandon)
		if err != nil {
			return err
		}
		if id != "" {
			if c.Records != nil {
				c.removeRecord(ctx, id)
			}
			return nil
		}
	}
}

// forgetAtOnce is how many component records one commit deletes. The same commit has
// room for the install and its other records.
const forgetAtOnce = 50

// forget deletes the install and returns its identifier. It returns "" if it deleted
// only some of the records and must be called again.
func (c *Control) forget(ctx context.Context, org fairlead.OrgID, name string, abandon bool) (id fairlead.InstallID, err error) {
	err = c.Transact(ctx, "forget install "+name, func(tx *kernel.Tx) error {
		id = ""
		r, err := c.Store.Install(ctx, org, name)
		if err != nil {
			return err
		}
		if r.V.Active != "" {
			return catalog.Busy(r.V)
		}
		if err := catalog.NotMoving(r.V); err != nil {
			return err
		}
		comps, err := c.Store.Components(ctx, r.V.ID)
		if err != nil {
			return err
		}
		var left []string
		for _, k := range comps {
			if k.V.State != store.Absent {
				left = append(left, k.V.Name)
			}
		}
		if len(left) > 0 && !abandon {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeInstallNotEmpty,
				Message: fmt.Sprintf("install %s still has %d components: %v", name, len(left), left),
				Hint:    "Run {install.teardown} first, or leave everything where it is with {install.abandon}.",
				Args:    fairlead.Args{Install: name}}
		}
		all, err := forgetComponents(tx, r.V.ID, comps)
		if err != nil {
			return err
		}
		if !all {
			tx.CheckInstall(r) // fails the commit if a deployment starts meanwhile
			return nil
		}
		if err := runners.DropStack(tx, r.V.ID); err != nil {
			return err
		}
		if err := runners.DropSandboxRunner(tx, r.V); err != nil {
			return err
		}
		if err := execution.DropSchedules(tx, &r); err != nil {
			return err
		}
		tx.DropMember(org, store.Member{Group: r.V.Group, Kind: store.MemberInstall, Name: r.V.Name})
		tx.DropVariables(org, store.Scope{Kind: store.ScopeInstall, Name: string(r.V.ID)})
		if r.V.RunnerID != "" {
			tx.DropRunnerUse(r.V.RunnerID, r.V.ID)
		}
		if r.V.Bound != nil && r.V.Bound.Runner != r.V.RunnerID {
			tx.DropRunnerUse(r.V.Bound.Runner, r.V.ID)
		}
		tx.DeleteInstall(r)
		id = r.V.ID
		return nil
	})
	return id, err
}

// forgetComponents deletes the records of components and their state heads, as many as
// fit into a commit, and reports whether all are deleted. Components that may have
// resources left are deleted last.
func forgetComponents(tx *kernel.Tx, id fairlead.InstallID, comps []store.Stored[store.Component]) (all bool, err error) {
	stored, err := tx.Store.States(tx.Ctx, id)
	if err != nil {
		return false, err
	}
	heads := make(map[string]store.Stored[store.StateHead], len(stored))
	for _, h := range stored {
		heads[h.V.Component] = h
	}
	removed := 0
	dropState := func(name string) {
		h, ok := heads[name]
		if !ok {
			return
		}
		tx.Drop(h.V.Blob)
		tx.Drop(h.V.History...)
		tx.DeleteState(h)
		delete(heads, name)
		removed++
	}
	slices.SortStableFunc(comps, func(a, b store.Stored[store.Component]) int {
		switch first, second := a.V.State == store.Absent, b.V.State == store.Absent; {
		case first && !second:
			return -1
		case second && !first:
			return 1
		}
		return 0
	})
	for _, k := range comps {
		if removed+2 > forgetAtOnce {
			return false, nil
		}
		tx.Drop(k.V.VarsBlob, k.V.OutputsBlob)
		tx.DeleteComponent(k)
		removed++
		dropState(k.V.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(heads)) { // components without a record
		if removed == forgetAtOnce {
			return false, nil
		}
		dropState(name)
	}
	return true, nil
}

// removeRecord deletes the place of logs of a forgotten install. If removeRecord fails,
// the place stays. It is empty, or its logs expire.
func (c *Control) removeRecord(ctx context.Context, id fairlead.InstallID) {
	if err := c.Records.Remove(context.WithoutCancel(ctx), id); err != nil {
		c.Logger.Warn("cannot delete the log storage of a forgotten install", "install", id, "error", err)
	}
}
