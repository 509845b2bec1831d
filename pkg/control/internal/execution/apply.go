package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/store"
)

// applyJob applies an event to a job and writes the job with all consequences: the
// wake-up, the end of its log, and its slot.
func applyJob(tx *kernel.Tx, r store.Stored[store.Job], e job.Event) (store.Stored[store.Job], error) {
	return applyDeath(tx, r, e, nil)
}

// applyDeath is applyJob for an event that may end an attempt without a report of its
// step. whole describes the complete log of the attempt; nil if bytes may be missing.
func applyDeath(tx *kernel.Tx, r store.Stored[store.Job], e job.Event, whole *store.WholeLog) (store.Stored[store.Job], error) {
	e.At = tx.Now
	before := r.V.State
	next, err := job.Apply(r.V.Job, e)
	if err != nil {
		return r, kernel.JobError(err)
	}
	r.V.Job = next
	if before.Leased() && !next.State.Leased() && next.Lease.Epoch > 0 && e.Kind != job.Succeed && e.Kind != job.Fail && e.Kind != job.Stopped {
		open := store.OpenLog{Epoch: next.Lease.Epoch, Whole: whole}
		endLogAfter(tx, r.V.ID, open)
		r.V.OpenLogs = append(slices.Clone(r.V.OpenLogs), open)
	}
	if r.V.Slot && !next.State.Leased() {
		r.V.Slot = false
		if err := freeSlot(tx, r.V.Runner, r.V.ID); err != nil {
			return r, err
		}
	}
	if !before.Final() && next.State.Final() && next.Operation.Mutates() {
		audited(tx, r.V)
	}
	tx.PutJob(r)
	if next.State == job.Queued {
		tx.Wake(r.V)
	}
	if next.State == job.Canceling && before != job.Canceling {
		markCanceled(tx, r.V)
	}
	return r, nil
}

// audited gives the commit an entry of the audit: what an approval led to stands in the same chain as the approval. The actor is the
// runner that reports the end, or the control plane, which ends a job that the runner has lost.
func audited(tx *kernel.Tx, j store.Job) {
	if tx.By != (fairlead.Actor{}) {
		return // the entry has the person who canceled the job
	}
	tx.Cause, tx.Request.Action = fairlead.Actor{Token: actorControlPlane, Name: "control plane", Kind: actorControlPlane}, "end-job"
	if tx.ByRunner != "" {
		tx.Cause, tx.Request.Action = kernel.RunnerActor(j.Runner, j.RunnerName), tx.ByRunner
	}
}

// actorControlPlane is the ID and the kind of the actor of what the control plane does by itself.
const actorControlPlane = "control-plane"

// markCanceled writes the cancel marker of the job's attempt after the commit.
func markCanceled(tx *kernel.Tx, j store.Job) {
	a, ok := MarkOf(j)
	if tx.CancelMarks == nil || !ok {
		return
	}
	tx.OnCommit(func(ctx context.Context) {
		if err := tx.CancelMarks.Put(ctx, a); err != nil {
			tx.Logger.Warn("cannot write a cancel marker; the dispatcher writes it again, or the step learns of it at its next renewal", "job", j.ID, "error", err)
		}
	})
}

// MarkOf returns the attempt whose step a cancel marker wakes. A job without an install has no
// marker, and a job that no step started needs none.
func MarkOf(j store.Job) (a cancelmark.Attempt, ok bool) {
	return cancelmark.Attempt{Install: j.Install, Job: j.ID, Epoch: j.Lease.Epoch}, j.State == job.Canceling && j.Install != ""
}

// endLogAfter ends the log of an attempt after the commit that ends the attempt.
func endLogAfter(tx *kernel.Tx, id fairlead.JobID, l store.OpenLog) {
	tx.OnCommit(func(ctx context.Context) {
		if err := endGivenUp(ctx, tx.Log, id, l); err != nil {
			tx.Logger.Warn("cannot end the log of a dead attempt; the sweep tries again", "job", id, "epoch", l.Epoch, "error", err)
		}
	})
}

// endGivenUp ends the log of an attempt that ended without a report. It marks the log
// as complete only if the stored size and checksum match those that the writer noted.
func endGivenUp(ctx context.Context, log joblog.Log, id fairlead.JobID, l store.OpenLog) error {
	s := joblog.Stream{Job: string(id), Epoch: l.Epoch}
	truncated := true
	if l.Whole != nil {
		chunk, err := log.Read(ctx, s, 0, 1) // only to get its Info
		if err != nil && !errors.Is(err, joblog.ErrNotFound) {
			return fmt.Errorf("end log %s: %w", s, err)
		}
		truncated = chunk.Info.Size != l.Whole.Size || chunk.Info.CRC32 != l.Whole.CRC32
	}
	if err := log.End(ctx, s, truncated); err != nil && !errors.Is(err, joblog.ErrNotFound) {
		return fmt.Errorf("end log %s: %w", s, err)
	}
	return nil
}
