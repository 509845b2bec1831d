package state

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/statefile"
	"github.com/fairlead/fairlead/pkg/store"
)

// MaxState is the largest Terraform state or saved plan that the control plane stores,
// in bytes.
const MaxState = 64 << 20

// keepStates is how many earlier states of a component are kept.
const keepStates = 20

// LockedError reports a state that is locked by another job. Info is the lock info that
// the tool of the other job wrote. The refused tool prints Info.
type LockedError struct {
	Info []byte
	Err  *fairlead.Error
}

func (e *LockedError) Error() string { return e.Err.Error() }

// Unwrap returns the error with its kind.
func (e *LockedError) Unwrap() error { return e.Err }

func locked(component string, l store.StateLock) error {
	return &LockedError{Info: l.Info, Err: &fairlead.Error{
		Kind: fairlead.KindLocked, Code: fairlead.CodeStateLocked,
		Message: fmt.Sprintf("the state of component %s is locked by job %s (epoch %d) since %s", component, l.Job, l.Epoch, l.Created.UTC().Format("2006-01-02 15:04:05 MST")),
		Hint:    "Wait for the job: {job.show}. If it loses its lease, the next job of the component removes the lock by itself.",
		Args:    fairlead.Args{Job: string(l.Job)},
		Details: map[string]string{"job": string(l.Job), "lock_id": l.ID},
	}}
}

// unheld returns an error while the job of the lock still has its lease.
func unheld(tx *kernel.Tx, component string, l store.StateLock) error {
	held, err := tx.Holds(tx.Ctx, l)
	if err == nil && held {
		err = locked(component, l)
	}
	return err
}

// checkSize refuses a state that is larger than MaxState.
func checkSize(data []byte) error {
	if len(data) > MaxState {
		return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeStateTooLarge,
			Message: fmt.Sprintf("a state of %d bytes is larger than %d", len(data), MaxState)}
	}
	return nil
}

// stateOf returns the head of the state that the holder's job works on. A job can
// access the state of its own component only. A job that copies states can access all
// states of its install.
func stateOf(tx *kernel.Tx, h kernel.Holder, install, component string) (store.Stored[store.StateHead], store.Job, error) {
	r, err := tx.Store.Job(tx.Ctx, h.Job)
	if err != nil {
		return store.Stored[store.StateHead]{}, r.V, err
	}
	if string(r.V.Install) != install && r.V.InstallName != install || r.V.Component != component && r.V.Operation != job.OpMigrateState {
		return store.Stored[store.StateHead]{}, r.V, &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOtherState,
			Message: fmt.Sprintf("job %s may not access the state of %s/%s", h.Job, install, component)}
	}
	head, err := tx.Store.State(tx.Ctx, r.V.Install, component)
	return head, r.V, err
}

// stateBlob returns the blob key of the head's next state.
func stateBlob(h store.StateHead, id string) string {
	return fmt.Sprintf(statesPrefix+"%s/%s/%08d-%s", h.Install, h.Component, h.Writes+1, id)
}

func stateContext(h store.StateHead) string { return "state/" + string(h.Install) + "/" + h.Component }

// GetState returns the component's current state, or nil if there is none. It checks
// that the holder's lease is current: a state contains secrets, and a lease token has
// no expiry of its own.
func (st *States) GetState(ctx context.Context, h kernel.Holder, install, component string) ([]byte, error) {
	head, j, err := stateOf(st.Reading(ctx), h, install, component)
	if err != nil {
		return nil, err
	}
	if err := h.Fenced(j.Job); err != nil {
		return nil, err
	}
	if head.V.Blob == "" {
		return nil, nil
	}
	return st.OpenBlob(ctx, head.V.Blob, stateContext(head.V))
}

// PutState stores a new state. The job must have the lock, but it need not have its
// lease. So a job that lost its lease can still save its tool's changes until another job
// takes the lock.
func (st *States) PutState(ctx context.Context, h kernel.Holder, install, component, lockID string, data []byte) error {
	if err := checkSize(data); err != nil {
		return err
	}
	head, _, err := stateOf(st.Reading(ctx), h, install, component)
	if err != nil {
		return err
	}
	if err := mayWrite(head.V, h, lockID); err != nil {
		return err
	}
	given, err := statefile.Read(data)
	if err != nil {
		given = statefile.Head{} // the tool's next version may have another form
	}
	key := stateBlob(head.V, st.IDs("w"))
	if err := st.SealBlob(ctx, key, data, stateContext(head.V)); err != nil {
		return err
	}
	var old []string
	err = st.Transact(ctx, "store state of "+component, func(tx *kernel.Tx) error {
		head, _, err := stateOf(tx, h, install, component)
		if err != nil {
			return err
		}
		if head.V.Blob == key {
			return nil
		}
		if err := mayWrite(head.V, h, lockID); err != nil {
			return err
		}
		old = replaceState(&head.V, key, len(data), given, tx.Now)
		tx.PutState(head)
		return nil
	})
	if err != nil {
		return err // keep the blob: an unclear commit may refer to it
	}
	st.DropBlobs(ctx, old)
	return nil
}

// replaceState makes the blob the current state. It keeps keepStates earlier states, and
// returns the blobs of older states. An encrypted state replaces all that were not
// encrypted: the control plane keeps no state that it could open.
func replaceState(head *store.StateHead, key string, size int, given statefile.Head, at time.Time) (old []string) {
	if head.Blob != "" {
		head.History = append([]string{head.Blob}, head.History...)
	}
	keep := keepStates
	if head.Key == "" && given.Key != "" {
		keep = 0
	}
	if len(head.History) > keep {
		old, head.History = head.History[keep:], head.History[:keep]
	}
	head.Blob, head.Size, head.Serial, head.Key, head.Updated = key, size, given.Serial, given.Key, at
	head.Writes++
	return old
}

func mayWrite(head store.StateHead, h kernel.Holder, lockID string) error {
	l := head.Lock
	if l == nil {
		return &fairlead.Error{Kind: fairlead.KindStale, Code: fairlead.CodeStateNotLocked,
			Message: fmt.Sprintf("job %s does not hold the lock of the state of %s", h.Job, head.Component)}
	}
	if l.Job != h.Job || l.Epoch != h.Epoch || (lockID != "" && lockID != l.ID) {
		return locked(head.Component, *l)
	}
	return nil
}

// DeleteState deletes the component's current state. A tool requests it when no
// resources are left. Earlier states are kept.
func (st *States) DeleteState(ctx context.Context, h kernel.Holder, install, component string) error {
	return st.Transact(ctx, "delete state of "+component, func(tx *kernel.Tx) error {
		head, _, err := stateOf(tx, h, install, component)
		if err != nil {
			return err
		}
		if head.V.Blob == "" {
			return nil
		}
		if err := mayWrite(head.V, h, ""); err != nil {
			return err
		}
		head.V.History = append([]string{head.V.Blob}, head.V.History...)
		head.V.Blob, head.V.Size, head.V.Updated, head.V.Serial = "", 0, tx.Now, 0
		tx.PutState(head)
		return nil
	})
}

// LockState takes the lock of the component's state for the holder. If the state has
// another lock, and the attempt that took it still has its lease, LockState returns a
// *LockedError. If that attempt has no lease any more, LockState replaces its lock, and
// the attempt can no longer write.
func (st *States) LockState(ctx context.Context, h kernel.Holder, install, component, lockID string, info []byte) error {
	if lockID == "" || len(lockID) > 200 || len(info) > 8<<10 {
		return fairlead.Invalid(fairlead.CodeInvalidLock, "a lock has an ID of 1 to 200 bytes and an info of at most 8 KiB")
	}
	return st.Transact(ctx, "lock state of "+component, func(tx *kernel.Tx) error {
		head, j, err := stateOf(tx, h, install, component)
		if err != nil {
			return err
		}
		if err := h.Fenced(j.Job); err != nil {
			return err
		}
		if l := head.V.Lock; l != nil {
			if l.ID == lockID && l.Job == h.Job && l.Epoch == h.Epoch {
				return nil
			}
			if err := unheld(tx, component, *l); err != nil {
				return err
			}
		}
		head.V.Lock = &store.StateLock{ID: lockID, Job: h.Job, Epoch: h.Epoch, Info: info, Created: tx.Now}
		tx.PutState(head)
		return nil
	})
}

// UnlockState releases the lock. If the lock is already released, UnlockState succeeds.
// If another attempt holds the lock, or the lock has another ID, UnlockState returns a
// *LockedError.
func (st *States) UnlockState(ctx context.Context, h kernel.Holder, install, component, lockID string) error {
	return st.Transact(ctx, "unlock state of "+component, func(tx *kernel.Tx) error {
		head, _, err := stateOf(tx, h, install, component)
		if err != nil {
			return err
		}
		l := head.V.Lock
		if l == nil {
			return nil
		}
		if l.Job != h.Job || l.Epoch != h.Epoch || (lockID != "" && lockID != l.ID) {
			return locked(component, *l)
		}
		head.V.Lock = nil
		tx.PutState(head)
		return nil
	})
}

// planKey derives the key of a saved plan from its content, so that a late write of a
// lost attempt does not overwrite the plan of the next attempt.
func planKey(id fairlead.JobID, digest string) string {
	return plansPrefix + string(id) + "/" + strings.TrimPrefix(digest, "sha256:")
}

func planContext(id fairlead.JobID) string { return "plan/" + string(id) }

// PutPlan seals and stores the saved plan of the holder's plan job.
func (st *States) PutPlan(ctx context.Context, h kernel.Holder, data []byte) error {
	r, err := st.Held(ctx, h)
	if err != nil {
		return err
	}
	if !r.V.Operation.Plans() {
		return fairlead.Conflict(fairlead.CodeJobState, "job %s does not plan", h.Job)
	}
	if len(data) > MaxState {
		return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodePlanTooLarge,
			Message: fmt.Sprintf("a plan of %d bytes is larger than %d", len(data), MaxState)}
	}
	return st.SealBlob(ctx, planKey(h.Job, fmt.Sprintf("%x", sha256.Sum256(data))), data, planContext(h.Job))
}

// GetPlan returns the saved plan that the holder's job executes.
func (st *States) GetPlan(ctx context.Context, h kernel.Holder) ([]byte, error) {
	r, err := st.Held(ctx, h)
	if err != nil {
		return nil, err
	}
	if r.V.PlanJob == "" {
		return nil, fairlead.Conflict(fairlead.CodeJobState, "job %s executes no plan", h.Job)
	}
	data, err := st.OpenBlob(ctx, planKey(r.V.PlanJob, r.V.PlanDigest), planContext(r.V.PlanJob))
	if errors.Is(err, blob.ErrNotFound) {
		return nil, fairlead.NotFound(fairlead.CodePlanNotFound, string(r.V.PlanJob))
	}
	return data, err
}

// PlanKeys returns the blob keys of a deployment's saved plans. The commit that ends
// the deployment drops them, because no job may execute them any more and they contain
// the customer's values. CollectBlobs deletes plans that remain.
func PlanKeys(d store.Deployment) (keys []string) {
	for _, n := range d.Nodes {
		if n.PlanJob != "" && n.Digest != "" {
			keys = append(keys, planKey(n.PlanJob, n.Digest))
		}
	}
	return keys
}

// LockID reads the lock ID from a tool's lock info.
func LockID(info []byte) string {
	v, err := kernel.DecodeJSON(info)
	if err != nil {
		return ""
	}
	m, _ := v.(map[string]any)
	id, _ := m["ID"].(string)
	return strings.TrimSpace(id)
}
