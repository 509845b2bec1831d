package execution

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// A sweep reads overdue jobs page by page, the most overdue first, until there
// are none or it has read sweepPages: 20,000 jobs, as many as a runner's host or
// a network takes with it at once. What is left then is for the next sweep.
const (
	sweepPage  = 200
	sweepPages = 100
)

// maxResend is the longest pause between two wake-ups of a job that nobody
// takes.
const maxResend = 10 * time.Minute

// Swept counts what a sweep did.
type Swept struct {
	Looked, Woken, Expired, TimedOut, Failed int
	Stuck                                    int // jobs that were found to be
	Turned                                   int // runners that were found to be lost, or online again
	Letters                                  int // dead letters
}

// SweepJobs looks after the jobs that are due, one at a time, so that those who claim
// and report meanwhile wait for one short commit at most. It counts in s what it did.
func (ex *Execution) SweepJobs(ctx context.Context, s *Swept) error {
	for range sweepPages {
		due, err := ex.Store.DueJobs(ctx, ex.Now(), sweepPage)
		if err != nil {
			return err
		}
		moved := 0
		for _, r := range due {
			s.Looked++
			did, err := ex.sweepJob(ctx, r.V, s)
			if err != nil {
				s.Failed++
				ex.Logger.Warn("the sweep could not look after a job; the next one will", "job", r.V.ID, "error", err)
			}
			if did {
				moved++
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if len(due) < sweepPage || moved == 0 {
			return nil // the next page would hold the same jobs
		}
	}
	return nil
}

// sweepJob looks after one job and reports whether it is no longer due.
func (ex *Execution) sweepJob(ctx context.Context, found store.Job, s *Swept) (moved bool, err error) {
	if err := ex.endLogs(ctx, found); err != nil {
		return false, err
	}
	err = ex.Transact(ctx, "sweep job "+string(found.ID), func(tx *kernel.Tx) error {
		moved = true
		r, err := ex.Store.Job(ctx, found.ID)
		if err != nil {
			return err
		}
		r.V.OpenLogs = slices.DeleteFunc(slices.Clone(r.V.OpenLogs), func(l store.OpenLog) bool {
			return slices.ContainsFunc(found.OpenLogs, func(f store.OpenLog) bool { return f.Epoch == l.Epoch })
		})
		j := r.V
		e, overdue := j.Overdue(tx.Now)
		if held := ex.HeldUntil(); overdue && e.Kind == job.Expire && tx.Now.Before(held) {
			tx.PutJobAt(r, held)
			return nil
		}
		if overdue {
			e.Message = overdueMessage(e, j)
			if e.Kind == job.Expire {
				s.Expired++
			} else {
				s.TimedOut++
			}
			return endJob(tx, r, e)
		}
		switch {
		case j.DueAt.After(tx.Now):
			moved = false
			return nil // the index is behind
		case j.State == job.Queued && j.Due().After(tx.Now):
			tx.PutJobAt(r, j.Due()) // it was queued anew; its wake-up may still come
		case j.State == job.Claimed && firstLook(tx, j).Before(j.Due()):
			return lookAfterClaim(tx, ctx, r, s)
		case j.State == job.Queued:
			s.Woken++
			if noteStuck(tx, &r) {
				s.Stuck++
			}
			tx.Wake(j)
			again := tx.Now.Add(min(max(tx.Now.Sub(j.QueuedAt()), job.ResendAfter), maxResend))
			if stuck := j.WaitsSince().Add(job.StuckAfter); stuck.After(tx.Now) && stuck.Before(again) {
				again = stuck
			}
			tx.PutJobAt(r, again)
		default:
			tx.PutJobAt(r, j.Due()) // its lease was renewed, or it is over
		}
		return nil
	})
	return moved && err == nil, err
}

// agentLostAfter is how long the agent that has claimed a job may say nothing
// before the job is somebody else's: as long as a lease, and no shorter than the
// agent's heartbeats allow.
func agentLostAfter(tx *kernel.Tx) time.Duration { return min(tx.LostAfter(), job.LeaseTTL) }

// firstLook is when a claimed job is first looked at: its claim is a word of its
// agent.
func firstLook(tx *kernel.Tx, j store.Job) time.Time { return j.Claimed.Add(agentLostAfter(tx)) }

// lookAfterClaim looks after a job that may take longer to begin than its agent
// may be silent, because images are pulled first. Without it the death of the
// agent would be noticed when the time to start is over.
func lookAfterClaim(tx *kernel.Tx, ctx context.Context, r store.Stored[store.Job], s *Swept) error {
	lastSeen, err := claimLastSeen(tx, r.V)
	if err != nil {
		return err
	}
	until := lastSeen.Add(agentLostAfter(tx))
	if held := tx.HeldUntil(); held.After(until) {
		until = held // nobody could say anything while we were down
	}
	if until.After(tx.Now) {
		if due := r.V.Due(); due.Before(until) {
			until = due
		}
		tx.PutJobAt(r, until)
		return nil
	}
	s.Expired++
	return endJob(tx, r, job.Event{Kind: job.Die, Epoch: r.V.Lease.Epoch, Reason: fairlead.ReasonStartTimeout,
		Message: "its runner took it, and has not been heard of for " + agentLostAfter(tx).String() + "; it had not begun"})
}

// claimLastSeen is when something was last heard of the agent that has the
// claimed job: the one that took it, also in a later session, or one that says
// that it found the job on its machine.
func claimLastSeen(tx *kernel.Tx, j store.Job) (time.Time, error) {
	lastSeen := j.Claimed
	note := func(s store.Session) {
		if s.LastSeen.After(lastSeen) {
			lastSeen = s.LastSeen
		}
	}
	took, err := store.Optional(tx.Store.Session(tx.Ctx, j.Runner, j.Lease.Session))
	if err != nil {
		return lastSeen, err
	}
	if note(took.V); tx.Kernel.Now().Before(lastSeen.Add(agentLostAfter(tx))) {
		return lastSeen, nil
	}
	sessions, err := tx.Store.Sessions(tx.Ctx, j.Runner, runners.MaxAgents)
	for _, s := range sessions {
		if s.V.Instance != "" && s.V.Instance == took.V.Instance || slices.Contains(s.V.Running, string(j.ID)) {
			note(s.V)
		}
	}
	return lastSeen, err
}

// endLogs ends the logs of attempts that were given up. It was tried right
// after the commit that gave them up; whoever was to do so may have died then,
// and a log without an end is one that its readers follow for ever.
func (ex *Execution) endLogs(ctx context.Context, j store.Job) error {
	for _, l := range j.OpenLogs {
		if err := endGivenUp(ctx, ex.Log, j.ID, l); err != nil {
			return err
		}
	}
	return nil
}

// overdueMessage says what the passing of time did to a job.
func overdueMessage(e job.Event, j store.Job) string {
	switch {
	case e.Kind == job.Expire && j.State == job.Claimed:
		return "its runner took it, and it did not start within " + j.Terms.OrDefault().StartTimeout.String()
	case e.Kind == job.Expire:
		return "the runner stopped renewing its lease; it, its host or its network is gone"
	case j.State == job.Queued:
		return "no runner took it within " + job.QueueTimeout.String()
	}
	return "it ran for longer than " + j.Timeout().String()
}

// endJob applies an event that may end the job, and moves its deployment if it did.
func endJob(tx *kernel.Tx, r store.Stored[store.Job], e job.Event) error {
	r, err := applyJob(tx, r, e)
	if err != nil {
		return err
	}
	if at := r.V.Due(); !at.IsZero() {
		tx.PutJobAt(r, at) // its place is past, and the next page would hold it again
	}
	return advanceDeployment(tx, r.V)
}

// noteStuck notes that the queued job waits for longer than job.StuckAfter, once
// for each wait, and reports whether it was noted now.
func noteStuck(tx *kernel.Tx, r *store.Stored[store.Job]) bool {
	since := r.V.WaitsSince()
	if tx.Now.Before(since.Add(job.StuckAfter)) || r.V.Stuck != nil && !r.V.Stuck.At.Before(since) {
		return false
	}
	r.V.Stuck = &store.Stuck{At: tx.Now, Version: r.Version + 1}
	tx.Logger.Warn("a job is stuck: no runner takes it", "job", r.V.ID, "runner", r.V.RunnerName, "since", since)
	return true
}
