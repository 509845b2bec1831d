package control

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// sweepPage is how many overdue jobs one sweep looks at. What is left is the
// most overdue of the next.
const sweepPage = 200

// maxResend is the longest pause between two wake-ups of a job that nobody
// takes.
const maxResend = 10 * time.Minute

// Swept counts what a sweep did.
type Swept struct{ Looked, Woken, Expired, TimedOut, Failed int }

// HoldLeases keeps the sweep from taking a lease for expired until it had time
// to be renewed from now on. A control plane that is one process calls it when
// it starts: nobody could renew while it was down, and steps that are alive
// do so first thing.
func (c *Control) HoldLeases() {
	c.holdUntil.Store(c.Now().Add(c.Terms.OrDefault().LeaseTTL).UnixNano())
}

// Sweep repairs what was lost: wake-ups of queued jobs, and leases whose
// holder is gone. It looks at what is due and at nothing else, so an idle
// control plane costs one query. Many may run at once.
func (c *Control) Sweep(ctx context.Context) (Swept, error) {
	var s Swept
	due, err := c.Store.DueJobs(ctx, c.Now(), sweepPage)
	if err != nil {
		return s, err
	}
	for _, r := range due {
		s.Looked++
		if err := c.sweepJob(ctx, r.V, &s); err != nil {
			s.Failed++
			c.Logger.Warn("the sweep could not look after a job; the next one will", "job", r.V.ID, "error", err)
		}
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
	}
	return s, nil
}

func (c *Control) sweepJob(ctx context.Context, found store.Job, s *Swept) error {
	return c.transact(ctx, "sweep job "+string(found.ID), func(u *unit) error {
		r, err := c.Store.Job(ctx, found.ID)
		if err != nil {
			return err
		}
		j := r.V
		e, overdue := j.Overdue(u.now)
		if held := time.Unix(0, c.holdUntil.Load()); overdue && e.Kind == job.Expire && u.now.Before(held) {
			u.PutJobAt(r, held)
			return nil
		}
		if overdue {
			e.Message = overdueMessage(e, j)
			if e.Kind == job.Expire {
				s.Expired++
			} else {
				s.TimedOut++
			}
			return u.end(r, e)
		}
		switch {
		case j.DueAt.After(u.now):
			return nil // the index is behind
		case j.State == job.Queued:
			s.Woken++
			u.wakes = append(u.wakes, j)
			u.PutJobAt(r, u.now.Add(min(max(u.now.Sub(j.QueuedAt()), job.ResendAfter), maxResend)))
		default:
			u.PutJobAt(r, j.Due()) // its lease was renewed, or it is over
		}
		return nil
	})
}

// overdueMessage says what the passing of time did to a job.
func overdueMessage(e job.Event, j store.Job) string {
	switch {
	case e.Kind == job.Expire:
		return "the runner stopped renewing its lease; it, its host or its network is gone"
	case j.State == job.Queued:
		return "no runner took it within " + job.QueueTimeout.String()
	}
	return "it ran for longer than " + j.Operation.Timeout().String()
}

// end applies an event that may end the job, and moves its deployment if it did.
func (u *unit) end(r store.Stored[store.Job], e job.Event) error {
	r, err := u.applyJob(r, e)
	if err != nil {
		return err
	}
	return u.settle(r.V)
}
