package execution

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/store"
)

// ErrNoWork says that no job of the runner was queued while a claim waited.
// It is normal.
var ErrNoWork = errors.New("no work")

// Claim is a job that is leased to a session.
type Claim struct {
	Job
	LaunchToken string
}

// hideClaimed is how long a wake-up is hidden while its job is being claimed:
// should the claim die, another agent gets the wake-up after it.
const hideClaimed = 30 * time.Second

// Claim leases a queued job of the session's runner to the session, waiting up
// to wait for one to be queued, or returns ErrNoWork. At most one session holds
// a job at a given epoch. Safe for concurrent use.
func (ex *Execution) Claim(ctx context.Context, s runners.Session, wait time.Duration) (Claim, error) {
	if s.Draining {
		return Claim{}, ErrNoWork // it said that it takes no more
	}
	deadline := ex.Now().Add(wait)
	for {
		// Before anything is received: the queue of a runner that takes no work
		// keeps what it has.
		_, taking, err := ex.awaitTaking(ctx, s, deadline.Sub(ex.Now()))
		if err != nil {
			return Claim{}, err
		}
		if !taking {
			return Claim{}, ErrNoWork
		}
		msg, err := ex.Queue.Receive(ctx, kernel.QueueName(s.Runner), hideClaimed, min(max(0, deadline.Sub(ex.Now())), queue.MaxWait))
		if errors.Is(err, queue.ErrNoMessage) {
			return Claim{}, ErrNoWork
		}
		if err != nil {
			return Claim{}, fmt.Errorf("claim for runner %s: %w", s.Runner, err)
		}
		w, err := events.DecodeWake(msg.Body)
		if err != nil {
			// It stays hidden, comes back, and ends among the dead letters.
			ex.Logger.Warn("a message that is no wake-up was refused", "queue", kernel.QueueName(s.Runner), "message", msg.ID, "error", err)
			continue
		}
		// And after: it may have been told to stop while the claim waited, and the
		// session may have been ended. Until there is something to give, the latter
		// costs nobody anything, and looking would be a read for each idle claim.
		limit, taking := 0, false
		if err = runners.StandsStill(ex.Reading(ctx), s); err == nil {
			limit, taking, err = ex.takes(ctx, s)
		}
		if err != nil {
			if fairlead.KindOf(err) == fairlead.KindUnauthenticated {
				ex.putBack(ctx, s, msg, w) // for the runner's other agents, at once
			}
			return Claim{}, err
		}
		var claimed Claim
		if taking {
			claimed, err = ex.claim(ctx, s, w.Job, limit)
			taking = !errors.Is(err, errFull)
		}
		if !taking {
			ex.putBack(ctx, s, msg, w)
			continue
		}
		if err != nil && !errors.Is(err, ErrNoWork) {
			return Claim{}, err
		}
		// Whether it was claimed or there was nothing to claim, the wake-up has
		// done its work. One that is not deleted comes back and finds nothing.
		if derr := ex.Queue.Delete(context.WithoutCancel(ctx), kernel.QueueName(s.Runner), msg.Receipt); derr != nil && !errors.Is(derr, queue.ErrReceipt) {
			ex.Logger.Warn("a spent wake-up was not deleted", "job", w.Job, "error", derr)
		}
		if err == nil {
			return claimed, nil
		}
	}
}

// putBack lets others receive a wake-up that is not to be followed here.
func (ex *Execution) putBack(ctx context.Context, s runners.Session, msg queue.Message, w events.Wake) {
	if err := ex.Queue.Extend(ctx, kernel.QueueName(s.Runner), msg.Receipt, 0); err != nil && !errors.Is(err, queue.ErrReceipt) {
		ex.Logger.Warn("a wake-up was not put back; it is there again when it is hidden no more", "job", w.Job, "error", err)
	}
}

// awaitTaking waits until the session's runner takes work, or wait is over.
func (ex *Execution) awaitTaking(ctx context.Context, s runners.Session, wait time.Duration) (limit int, taking bool, err error) {
	if limit, taking, err = ex.takes(ctx, s); taking || err != nil {
		return limit, taking, err
	}
	err = ex.Wait(ctx, string(s.Runner), wait, func(ctx context.Context) (bool, error) {
		var err error
		limit, taking, err = ex.takes(ctx, s)
		return taking, err
	})
	return limit, taking, err
}

// takes reports whether the session's runner takes jobs: by the mode that its
// vendor has set, and by its limit, which is returned as well.
func (ex *Execution) takes(ctx context.Context, s runners.Session) (limit int, taking bool, err error) {
	n, err := ex.Store.RunnerName(ctx, s.Runner)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return 0, false, identity.NoLonger() // it was deleted
	}
	if err != nil || !n.V.Mode.TakesJobs() {
		return n.V.Limit, false, err
	}
	if n.V.Limit == 0 {
		return 0, true, nil
	}
	slots, err := ex.Store.RunnerSlots(ctx, s.Runner)
	return n.V.Limit, len(slots.V.Jobs) < n.V.Limit, err
}

// errFull says that a runner runs as many jobs as its limit allows.
var errFull = errors.New("the runner is at its limit")

// takeSlot takes one of the runner's slots for the job, in the commit that
// claims it.
func takeSlot(tx *kernel.Tx, runner fairlead.RunnerID, id fairlead.JobID, limit int) error {
	slots, err := tx.SlotsOf(runner)
	if err != nil {
		return err
	}
	if len(slots.V.Jobs) >= limit {
		return errFull
	}
	slots.V.Jobs = append(slices.Clone(slots.V.Jobs), id)
	tx.PutSlots(slots)
	return nil
}

// freeSlot gives the job's slot back, in the commit that ends its lease.
func freeSlot(tx *kernel.Tx, runner fairlead.RunnerID, id fairlead.JobID) error {
	slots, err := tx.SlotsOf(runner)
	if err != nil {
		return err
	}
	slots.V.Jobs = slices.DeleteFunc(slices.Clone(slots.V.Jobs), func(j fairlead.JobID) bool { return j == id })
	if slots.Version > 0 { // else the runner was deleted, and its slots with it
		tx.PutSlots(slots)
	}
	return nil
}

func (ex *Execution) claim(ctx context.Context, s runners.Session, id fairlead.JobID, limit int) (Claim, error) {
	var out Claim
	// Names this claim, so that after an unclear commit it is known again.
	before := int64(-1)
	err := ex.Transact(ctx, "claim job "+string(id), func(tx *kernel.Tx) error {
		r, err := ex.Store.Job(ctx, id)
		if fairlead.KindOf(err) == fairlead.KindNotFound {
			return ErrNoWork
		}
		if err != nil {
			return err
		}
		if before >= 0 && r.V.State == job.Claimed && r.V.Lease.Session == s.ID && r.V.Lease.Epoch == before+1 {
			out.Job = JobOf(r.V)
			return nil // our own commit, whose answer was unclear
		}
		if r.V.State != job.Queued || r.V.Runner != s.Runner || r.V.NotBefore.After(tx.Now) {
			return ErrNoWork
		}
		before = r.V.Lease.Epoch
		if limit > 0 {
			if err := takeSlot(tx, r.V.Runner, id, limit); err != nil {
				return err
			}
			r.V.Slot = true
		}
		r, err = applyJob(tx, r, job.Event{Kind: job.Claim, Session: s.ID})
		out.Job = JobOf(r.V)
		if look := firstLook(tx, r.V); err == nil && look.Before(r.V.Due()) && r.V.DueAt.After(look) {
			tx.PutJobAt(r, look)
		}
		return err
	})
	if err != nil {
		return Claim{}, err
	}
	out.LaunchToken = ex.Minter.Mint(identity.Claims{Purpose: identity.Launch, Subject: string(id), Epoch: out.Lease.Epoch})
	return out, nil
}

// ReleaseJob gives back a claimed job that was never launched.
func (ex *Execution) ReleaseJob(ctx context.Context, s runners.Session, id fairlead.JobID, epoch int64) error {
	return ex.Transact(ctx, "release job "+string(id), func(tx *kernel.Tx) error {
		r, err := runnersJob(tx, s, id)
		if err != nil {
			return err
		}
		if r.V.State == job.Queued && r.V.Lease.Epoch == epoch {
			return nil // released already
		}
		_, err = applyJob(tx, r, job.Event{Kind: job.Release, Epoch: epoch})
		return err
	})
}

// jobOf returns a job of the session's runner; those of others do not exist.
func runnersJob(tx *kernel.Tx, s runners.Session, id fairlead.JobID) (store.Stored[store.Job], error) {
	r, err := tx.Store.Job(tx.Ctx, id)
	if err == nil && r.V.Runner != s.Runner {
		return store.Stored[store.Job]{}, fairlead.NotFound(fairlead.CodeJobNotFound, string(id))
	}
	return r, err
}

// Death is what an agent saw of a step that is gone.
type Death struct {
	Epoch    int64
	ExitCode *int
	Signal   string
	Cause    fairlead.Cause
	Message  string
	Salvaged *job.Salvaged // nil: the runner keeps nothing of a state
	DiskFull bool          // a disk of the runner had no space left
	Log      *WholeLog     // nil: bytes may be missing
}

// WholeLog describes a log of which nothing is missing, as its writer knew it.
type WholeLog struct {
	Size  int64
	CRC32 uint32 // IEEE
}

// ReportDeath records that the step of a job is gone, and all it had started.
func (ex *Execution) ReportDeath(ctx context.Context, s runners.Session, id fairlead.JobID, d Death) error {
	if !slices.Contains(fairlead.Causes(), d.Cause) { // the agent is trusted with a cause, not with a text that others will act on
		return fairlead.Invalid(fairlead.CodeInvalidReason, "%q is no reason of a death", d.Cause)
	}
	message := diagnosis.Death(d.Cause, d.ExitCode, d.Signal, fairlead.Clip(strings.TrimSpace(d.Message), 2000))
	return ex.Transact(ctx, "report death of job "+string(id), func(tx *kernel.Tx) error {
		r, err := runnersJob(tx, s, id)
		if err != nil {
			return err
		}
		r, err = applyDeath(tx, r, job.Event{Kind: job.Die, Epoch: d.Epoch, Reason: d.Cause.Reason(), Message: message, ExitCode: d.ExitCode, Salvaged: d.Salvaged, DiskFull: d.DiskFull}, (*store.WholeLog)(d.Log))
		if err != nil {
			return err
		}
		return advanceDeployment(tx, r.V)
	})
}

// Started is what a launch token buys.
type Started struct {
	Envelope   []byte
	LeaseToken string
	RenewEvery time.Duration // how often to renew the lease
}

// StartJob trades a launch token, which names job and epoch, for the signed
// spec. The same step may ask again; any other is refused. fields are those of a
// spec that the step knows beyond those that all do. Where there can be no spec,
// the job ends: the error has the detail DetailEnded, and its code is the reason.
func (ex *Execution) StartJob(ctx context.Context, id fairlead.JobID, epoch int64, step string, fields ...string) (Started, error) {
	// Opening the epoch fences the log of every attempt before. It is open when
	// the job starts, so that a reader who sees the one sees the other; should
	// the start be refused, an empty stream is all that is left of it.
	if err := ex.Log.Open(ctx, joblog.Stream{Job: string(id), Epoch: epoch}); err != nil && !errors.Is(err, joblog.ErrFenced) {
		return Started{}, fmt.Errorf("open log of job %s: %w", id, err)
	}
	var r store.Stored[store.Job]
	err := ex.Transact(ctx, "start job "+string(id), func(tx *kernel.Tx) error {
		var err error
		if r, err = ex.Store.Job(ctx, id); err != nil {
			return err
		}
		if r.V.State.Leased() && r.V.Lease.Epoch == epoch && r.V.Lease.Step == step {
			return nil // its answer was lost; the lease runs as it does
		}
		if r.V.State.Leased() && r.V.Lease.Epoch == epoch && r.V.Lease.Step != "" {
			return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeLaunchTokenUsed,
				Message: fmt.Sprintf("the launch token of job %s has been traded by another step", id)}
		}
		r, err = applyJob(tx, r, job.Event{Kind: job.Start, Epoch: epoch, Step: step})
		return err
	})
	if err != nil {
		return Started{}, err
	}
	env, err := spec(ex.Reading(ctx), r.V, fields)
	if err != nil {
		return Started{}, ex.endUnstarted(ctx, kernel.Holder{Job: id, Epoch: epoch}, err)
	}
	return Started{Envelope: env, RenewEvery: r.V.Terms.RenewEvery(),
		LeaseToken: ex.Minter.Mint(identity.Claims{Purpose: identity.Lease, Subject: string(id), Epoch: epoch})}, nil
}

// DetailEnded is a detail of errors of StartJob: "true" if the job has ended with
// the error's code as its reason. Steps know it by wire.DetailJobEnded.
const DetailEnded = "job_ended"

// endUnstarted ends a job for which there can be no spec, and returns why there is
// none. The step has no lease yet, so it cannot report that itself. If asking again
// may help, the job goes on.
func (ex *Execution) endUnstarted(ctx context.Context, h kernel.Holder, why error) error {
	e, ok := errors.AsType[*fairlead.Error](why)
	if !ok {
		return why
	}
	switch e.Kind {
	case fairlead.KindConflict, fairlead.KindInvalid, fairlead.KindNotFound:
	default:
		return why
	}
	if err := ex.FinishJob(ctx, h, Report{Outcome: OutcomeFailed, Reason: e.Code.Reason(), Message: e.Message + ". Nothing was started."}); err != nil {
		return err
	}
	out := *e
	out.Err, out.Details = why, maps.Clone(e.Details)
	if out.Details == nil {
		out.Details = map[string]string{}
	}
	out.Details[DetailEnded] = "true"
	return &out
}

// ClaimJob is Claim for an agent that has the wake-up of a job already. It does
// not wait. A runner that takes no work is told so by an error: its agent is to
// leave the queue alone, where the API's claims do.
func (ex *Execution) ClaimJob(ctx context.Context, s runners.Session, id fairlead.JobID) (Claim, error) {
	if s.Draining {
		return Claim{}, ErrNoWork
	}
	notTaking := fairlead.Conflict(fairlead.CodeRunnerNotTaking, "runner %s takes no work now: it is disabled, draining, paused, or at its limit", s.Runner)
	limit, taking, err := ex.takes(ctx, s)
	if err != nil {
		return Claim{}, err
	}
	if !taking {
		return Claim{}, notTaking
	}
	claimed, err := ex.claim(ctx, s, id, limit)
	if errors.Is(err, errFull) {
		err = notTaking
	}
	return claimed, err
}
