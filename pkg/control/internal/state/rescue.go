package state

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/statefile"
	"github.com/fairlead/fairlead/pkg/store"
)

// BreakStateLock lets a person remove the lock of a component whose tool died without
// unlocking. It refuses while the lock's job still has its lease. It also refuses if
// lockID is set and the current lock has another id, because the person saw another lock.
// The record of the state keeps the broken lock, and an event reports it. Repeating the
// request with the same lockID is safe. BreakStateLock returns an error of KindNotFound if
// neither the install nor its app has the component.
func (st *States) BreakStateLock(ctx context.Context, org fairlead.OrgID, install, component, lockID string) error {
	return st.Transact(ctx, "break state lock of "+component, func(tx *kernel.Tx) error {
		inst, err := st.Store.Install(ctx, org, install)
		if err != nil {
			return err
		}
		head, err := st.Store.State(ctx, inst.V.ID, component)
		if err != nil {
			return err
		}
		l := head.V.Lock
		if l == nil {
			if b := head.V.Broken; b != nil && lockID != "" && b.ID == lockID {
				return nil // a repeated request, or our own commit
			}
			if head.Version == 0 {
				if err := namedComponent(tx, inst.V, component); err != nil {
					return err
				}
			}
			k, err := tx.Component(inst.V.ID, component)
			if err != nil {
				return err
			}
			return notOurs(inst.V.In(k.V.InSandbox), component)
		}
		if lockID != "" && l.ID != lockID {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeLockChanged,
				Message: fmt.Sprintf("the state of component %s has another lock by now: %s, of job %s", component, l.ID, l.Job),
				Hint:    "See the current lock first: {install.show}.",
				Args:    fairlead.Args{Install: install},
				Details: map[string]string{"job": string(l.Job), "lock_id": l.ID}}
		}
		if err := unheld(tx, component, *l); err != nil {
			return err
		}
		breakLock(tx, &head)
		return nil
	})
}

// namedComponent returns an error of KindNotFound if the install has no record of the
// component, and neither the app's newest version nor the active deployment names it. A
// component without a record can have a lock, because its first plan may have left a lock
// in the customer's storage.
func namedComponent(tx *kernel.Tx, in store.Install, component string) error {
	k, err := tx.Store.Component(tx.Ctx, in.ID, component)
	if err != nil || k.Version > 0 {
		return err
	}
	app, err := catalog.ReadApp(tx, in.Org, in.App)
	if err != nil {
		return err
	}
	if _, ok := app.Newest.Spec.Component(component); ok {
		return nil
	}
	if in.Active != "" {
		d, err := tx.Store.Deployment(tx.Ctx, in.Active)
		if err != nil || d.V.Node(component) != nil {
			return err
		}
	}
	return noComponent(in, component)
}

func noComponent(in store.Install, component string) error {
	return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeComponentNotFound,
		Message: fmt.Sprintf("install %s has no component %q", in.Name, component),
		Hint:    "{install.show} lists its components.",
		Args:    fairlead.Args{Install: in.Name}}
}

// notOurs returns the error for a state that the control plane has not locked. A lock
// may still exist in the customer's storage, where a person can remove it.
func notOurs(in store.Install, component string) error {
	out := &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateNotLocked,
		Message: fmt.Sprintf("the state of component %s is not locked by the control plane", component)}
	if in.Bound == nil {
		return out
	}
	storage, err := runners.BoundStorage(*in.Bound)
	if err != nil {
		return err
	}
	if ref := Ref(storage, in.ID, component); ref.Unlock() != "" {
		out.Hint = fmt.Sprintf("A lock may be stored next to the state: %s. When no process uses the state any more, remove the lock with `%s`.", ref.Where(false), ref.Unlock())
	}
	return out
}

// breakLock removes the lock of a state and records the person who did so.
func breakLock(tx *kernel.Tx, head *store.Stored[store.StateHead]) {
	l := head.V.Lock
	tx.Logger.Info("a person breaks the lock of a state", "install", head.V.Install, "component", head.V.Component, "lock", l.ID, "job", l.Job, "epoch", l.Epoch, "by", kernel.Actor(tx.Ctx).Name)
	head.V.Broken = &store.BrokenLock{StateLock: *l, At: tx.Now, By: kernel.Actor(tx.Ctx), Version: head.Version + 1}
	head.V.Broken.Info = nil // it may be large, and the person has seen it
	head.V.Lock = nil
	tx.PutState(*head)
}

// PushedState is a state that a person uploaded.
type PushedState struct {
	Serial int64 // the state's own serial
	Size   int   // in bytes
	Saved  time.Time
}

// PushState lets a person upload a state that a tool could not save and that the runner
// kept. It is refused while a job of the component is queued, runs, or holds the lock.
// Like the tools, it also refuses a state of another lineage, and a state that is not
// newer than the current one. If a dead job left a lock, PushState
// removes the lock, because that job saves nothing any more. Pushing the current state
// again is safe. If the current state is encrypted, PushState refuses one in clear.
func (st *States) PushState(ctx context.Context, org fairlead.OrgID, install, component string, data []byte) (PushedState, error) {
	given, err := statefile.Read(data)
	if err != nil || given.Lineage == "" && given.Version == 0 {
		return PushedState{}, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidState,
			Message: "the file is not a Terraform state: it has neither version nor lineage", Hint: "Send the whole file as the tool wrote it."}
	}
	if err := checkSize(data); err != nil {
		return PushedState{}, err
	}
	name := st.IDs("w")
	var out PushedState
	var old []string
	err = st.Transact(ctx, "push state of "+component, func(tx *kernel.Tx) error {
		head, err := pushable(tx, org, install, component)
		if err != nil {
			return err
		}
		out = PushedState{head.V.Serial, head.V.Size, head.V.Updated}
		if p := head.V.Pushed; p != nil && p.Blob == head.V.Blob && tx.Again && strings.HasSuffix(p.Blob, name) {
			return nil // our own earlier commit, whose outcome was unclear
		}
		if head.V.Key != "" && given.Key == "" {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateInClear,
				Message: fmt.Sprintf("the state of component %s is encrypted, and the pushed one is not: the control plane could read it", component),
				Hint:    "A person with the customer's seed pushes it with a key file, which encrypts it."}
		}
		if same, err := newer(tx, head.V, given, data); err != nil || same {
			return err
		}
		// A retry uses the same blob name, unless another state was written meanwhile. In
		// that case the blob of the first try is left over, which does no harm.
		key := stateBlob(head.V, name)
		if err := st.SealBlob(ctx, key, data, stateContext(head.V)); err != nil {
			return err
		}
		st.Logger.Info("a person pushes a state", "install", head.V.Install, "component", component, "serial", given.Serial, "before", head.V.Serial, "by", kernel.Actor(ctx).Name)
		old = replaceState(&head.V, key, len(data), given, tx.Now)
		head.V.Pushed = &store.PushedState{Blob: key, At: tx.Now, By: kernel.Actor(ctx), Version: head.Version + 1}
		head.V.Lock = nil
		tx.PutState(head)
		out = PushedState{head.V.Serial, head.V.Size, head.V.Updated}
		return nil
	})
	if err != nil {
		return PushedState{}, err
	}
	st.DropBlobs(ctx, old)
	return out, nil
}

// pushable returns the head of a component's state, or an error if a person may not
// replace the state now.
func pushable(tx *kernel.Tx, org fairlead.OrgID, install, component string) (store.Stored[store.StateHead], error) {
	var none store.Stored[store.StateHead]
	inst, err := tx.Store.Install(tx.Ctx, org, install)
	if err != nil {
		return none, err
	}
	if err := catalog.NotMoving(inst.V); err != nil {
		return none, err
	}
	k, err := tx.Store.Component(tx.Ctx, inst.V.ID, component)
	if err != nil {
		return none, err
	}
	if k.Version == 0 {
		return none, noComponent(inst.V, component) // no job would ever destroy the resources of this state
	}
	if t := k.V.TypeOf(); t.StateFile == "" {
		return none, fairlead.Conflict(fairlead.CodeNoState, "component %s of install %s is of the type %s, which has no state", component, install, t.Name)
	}
	of := inst.V.In(k.V.InSandbox)
	runner, err := runners.ServingRunner(tx, of)
	if err != nil {
		return none, err
	}
	storage, err := runners.StorageKind(tx, of)
	if err != nil {
		return none, err
	}
	if storage != "http" && storage != "local" {
		return none, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateOnRunner,
			Message: fmt.Sprintf("the state of install %s is in the storage of runner %s (%s), which the control plane cannot reach", install, runner.V.Name, storage),
			Hint:    "Upload it to the component's state in the runner's own storage: run `tofu state push` in a folder with that backend."}
	}
	if storage != "http" {
		return none, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateOnRunner,
			Message: fmt.Sprintf("the state of install %s is on the disk of runner %s, which the control plane cannot reach", install, runner.V.Name),
			Hint:    fmt.Sprintf("On the runner's host, in its data folder, copy the file over %s before the next apply.", k.V.TypeOf().StatePath(string(inst.V.ID), k.V.Name))}
	}
	if inst.V.Active != "" {
		d, err := tx.Store.Deployment(tx.Ctx, inst.V.Active)
		if err != nil {
			return none, err
		}
		if n := d.V.Node(component); n != nil && slices.Contains([]deployment.NodeState{deployment.Planning, deployment.Applying, deployment.Reconciling}, n.State) {
			return none, catalog.Busy(inst.V)
		}
	}
	head, err := tx.Store.State(tx.Ctx, inst.V.ID, component)
	head.V.Org = inst.V.Org // the org that gets the event
	if err != nil || head.V.Lock == nil {
		return head, err
	}
	return head, unheld(tx, component, *head.V.Lock)
}

// newer returns an error if the state in data may not replace the current state. It
// returns true if the two states are equal. The parameter given is data in decoded form.
func newer(tx *kernel.Tx, head store.StateHead, given statefile.Head, data []byte) (same bool, err error) {
	if head.Blob == "" {
		return false, nil
	}
	current, err := tx.OpenBlob(tx.Ctx, head.Blob, stateContext(head))
	if err != nil {
		return false, err
	}
	if bytes.Equal(current, data) {
		return true, nil
	}
	was, err := statefile.Read(current)
	if err != nil {
		return false, fmt.Errorf("read state of %s: %w", head.Component, err)
	}
	switch {
	case was.Lineage != given.Lineage:
		return false, fairlead.Conflict(fairlead.CodeStateLineage, "the state is not one of component %s: its lineage is %s, not %s", head.Component, given.Lineage, was.Lineage)
	case given.Serial <= was.Serial:
		return false, fairlead.Conflict(fairlead.CodeStateOlder, "the state is not newer than that of component %s: its serial is %d, and the current one is %d", head.Component, given.Serial, was.Serial)
	}
	return false, nil
}
