package kernel

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// Holder is the attempt that a lease token was issued to.
type Holder struct {
	Job   fairlead.JobID
	Epoch int64
}

// Fenced returns nil if the holder's lease is the job's current lease. Otherwise it
// returns an error of KindStale.
func (h Holder) Fenced(j job.Job) error {
	if !j.State.Leased() || j.Lease.Epoch != h.Epoch {
		return JobError(&job.StaleError{Job: h.Job, State: j.State, Epoch: j.Lease.Epoch, Given: h.Epoch})
	}
	return nil
}

// Held returns the job if the holder's lease is the job's current lease, and an error
// otherwise.
func (k *Kernel) Held(ctx context.Context, h Holder) (store.Stored[store.Job], error) {
	r, err := k.Store.Job(ctx, h.Job)
	if err != nil {
		return r, err
	}
	return r, h.Fenced(r.V.Job)
}

// Holds reports whether the attempt that took a state lock still has its lease.
func (k *Kernel) Holds(ctx context.Context, l store.StateLock) (bool, error) {
	r, err := store.Optional(k.Store.Job(ctx, l.Job))
	return r.V.State.Leased() && r.V.Lease.Epoch == l.Epoch, err
}

// AuthenticateJob returns the holder that a token of the given purpose names. It fails
// if id is set and the token is for another job. It does not check whether the lease is
// current: each use case does.
func (k *Kernel) AuthenticateJob(token string, id fairlead.JobID, purposes ...identity.Purpose) (Holder, error) {
	h, _, err := k.readJob(token, id, purposes...)
	return h, err
}

// readJob is AuthenticateJob, and also returns the token's claims.
func (k *Kernel) readJob(token string, id fairlead.JobID, purposes ...identity.Purpose) (Holder, identity.Claims, error) {
	claims, err := k.Minter.Read(token, k.Now(), purposes...)
	if err != nil {
		return Holder{}, claims, err
	}
	if id != "" && claims.Subject != string(id) {
		return Holder{}, claims, &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOtherJob,
			Message: "the token is for another job"}
	}
	return Holder{Job: fairlead.JobID(claims.Subject), Epoch: claims.Epoch}, claims, nil
}

// Binding is the AWS role that a launch token or a warm token is bound to (see package bound).
type Binding struct {
	Role  string // ARN; "": none, and the token alone is enough
	Nonce string // what the proof of the role signs as its nonce
}

// BindingOf returns the binding of a token with these claims.
func BindingOf(token string, c identity.Claims) Binding {
	return Binding{Role: c.Role, Nonce: bound.Nonce(token)}
}

// Launch is the right to start one epoch of a job. A launch token gives it.
type Launch struct {
	Holder
	Binding
}

// AuthenticateLaunch is AuthenticateJob for a launch token. It does not verify that the caller has the token's role:
// ProveRole does.
func (k *Kernel) AuthenticateLaunch(token string, id fairlead.JobID) (Launch, error) {
	h, claims, err := k.readJob(token, id, identity.Launch)
	return Launch{h, BindingOf(token, claims)}, err
}

// JobError converts errors of package job to errors with a kind.
func JobError(err error) error {
	if e, ok := errors.AsType[*job.StaleError](err); ok {
		return &fairlead.Error{Kind: fairlead.KindStale, Code: fairlead.CodeStaleEpoch, Message: e.Error(),
			Hint: "Another attempt of the job has the lease, or the job has ended. Stop this attempt.", Err: err}
	}
	if e, ok := errors.AsType[*job.TransitionError](err); ok {
		return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeJobState, Message: e.Error(), Err: err}
	}
	return err
}
