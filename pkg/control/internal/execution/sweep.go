package execution

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// A sweep reads overdue objects in pages, the most overdue first, up to sweepPages pages.
// These pages hold 20,000 jobs, as many as the loss of a host or a network affects at the
// same time. The next sweep handles the rest.
const (
	sweepPage  = 200
	sweepPages = 100
)

// maxResend is the longest time between two wake-ups of a job that no agent claims.
const maxResend = 10 * time.Minute

// silentAfter is how long an agent that has a job may be silent before the end of the job's lease
// shows that it is dead. A live one sends a heartbeat every 18 s, or more often.
const silentAfter = 30 * time.Second

// Swept counts the results of a sweep.
type Swept struct {
	Looked, Woken, Expired, TimedOut, Failed int
	Stuck                                    int // jobs newly found to be stuck
	Turned                                   int // runners that turned lost, or online again
	Lost                                     int // runners that turned lost
	Letters                                  int // dead letters
	Runs                                     int // runs of actions that schedules started
	Skipped                                  int // times of schedules for which no run was started
	Plans                                    int // deployments of which a plan expired
}

// LogValue returns the counts as attributes of a log line. Metrics of the stack on AWS take
// stuck and lost from this line.
func (s Swept) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("looked", s.Looked), slog.Int("woken", s.Woken), slog.Int("expired", s.Expired), slog.Int("timed_out", s.TimedOut),
		slog.Int("failed", s.Failed), slog.Int("stuck", s.Stuck), slog.Int("turned", s.Turned), slog.Int("lost", s.Lost), slog.Int("dead_letters", s.Letters),
		slog.Int("runs", s.Runs), slog.Int("skipped_runs", s.Skipped), slog.Int("expired_plans", s.Plans))
}

// SweepJobs handles the jobs that are due, in one short commit each, so that concurrent
// claims and reports wait for one commit at most. It adds its results to s.
func (ex *Execution) SweepJobs(ctx context.Context, s *Swept) error {
	return sweepDue(ctx, ex, s, ex.Store.DueJobs, func(j store.Job) (bool, error) {
		s.Looked++
		return ex.sweepJob(ctx, j, s)
	}, func(j store.Job) []any { return []any{"job", j.ID} })
}

// WakeQueued sends the wake-ups of all queued jobs, and returns their number. A control plane whose queue is in its memory calls it at
// start.
func (ex *Execution) WakeQueued(ctx context.Context) (sent int, err error) {
	for after := ""; ; {
		page, err := ex.Store.ActiveJobs(ctx, after)
		if err != nil {
			return sent, err
		}
		for _, r := range page.Items {
			if r.V.State != job.Queued {
				continue
			}
			if err := kernel.SendWake(ctx, ex.Queue, ex.Now(), r.V); err != nil {
				return sent, err
			}
			sent++
		}
		if after = page.Next; after == "" {
			return sent, nil
		}
	}
}

// sweepDue reads the objects that are due in pages, and gives each to handle, which reports whether the object is no
// longer due. An object that handle fails on is logged with the attributes of name, counted in s.Failed, and left to the
// next sweep.
func sweepDue[V any](ctx context.Context, ex *Execution, s *Swept, due func(context.Context, time.Time, int) ([]store.Stored[V], error),
	handle func(V) (moved bool, err error), name func(V) []any) error {
	for range sweepPages {
		page, err := due(ctx, ex.Now(), sweepPage)
		if err != nil {
			return err
		}
		moved := 0
		for _, r := range page {
			did, err := handle(r.V)
			if err != nil {
				s.Failed++
				ex.Logger.Warn("the sweep cannot handle an object that is due; the next sweep tries again", append(name(r.V), "error", err)...)
			}
			if did {
				moved++
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if len(page) < sweepPage || moved == 0 {
			return nil // the next page would contain the same objects
		}
	}
	return nil
}

// sweepJob handles one job, and reports whether it is no longer due.
//
// long: one commit decides what a due job needs, one case for each state; what the job shows
// about its agents is recorded after that commit.
func (ex *Execution) sweepJob(ctx context.Context, found store.Job, s *Swept) (moved bool, err error) {
	var suspect func(store.Session) bool // what the job shows about the agents of its runner; nil: nothing
	if err := ex.endLogs(ctx, found); err != nil {
		return false, err
	}
	err = ex.Transact(ctx, "sweep job "+string(found.ID), func(tx *kernel.Tx) error {
		moved, suspect = true, nil
		r, err := ex.Store.Job(ctx, found.ID)
		if err != nil {
			return err
		}
		r.V.OpenLogs = slices.DeleteFunc(slices.Clone(r.V.OpenLogs), func(l store.OpenLog) bool {
			return slices.ContainsFunc(found.OpenLogs, func(f store.OpenLog) bool { return f.Epoch == l.Epoch })
		})
		j := r.V
		e, overdue := j.Overdue(tx.Now)
		silent := func(s store.Session) bool { return holds(s, j) && tx.Now.Sub(s.LastSeen) >= silentAfter }
		if held := ex.HeldUntil(); overdue && e.Kind == job.Expire && tx.Now.Before(held) {
			tx.PutJobAt(r, held)
			return nil
		}
		if overdue {
			e.Message = overdueMessage(e, j)
			if e.Kind == job.Expire {
				s.Expired++
				suspect = silent
			} else {
				s.TimedOut++
			}
			return endJob(tx, r, e)
		}
		switch {
		case j.DueAt.After(tx.Now):
			moved = false
			return nil // the index is older than the job
		case j.State == job.Queued && j.Due().After(tx.Now):
			tx.PutJobAt(r, j.Due()) // the job was queued again, and its wake-up may still arrive
		case j.State == job.Claimed && firstLook(tx, j).Before(j.Due()):
			dead, err := lookAfterClaim(tx, ctx, r, s)
			if dead {
				suspect = silent
			}
			return err
		case j.State == job.Queued:
			s.Woken++
			runner, taking, err := ex.runnerTakes(ctx, j.Runner)
			if err != nil && fairlead.KindOf(err) != fairlead.KindUnauthenticated { // the runner was deleted
				return err
			}
			if taking && !tx.Now.Before(ex.HeldUntil()) { // agents could not report while the control plane was down
				suspect = func(s store.Session) bool { return ignores(s, j, tx.Now) && !runners.Pins(runner, s.Version) }
			}
			if noteStuck(tx, &r) {
				s.Stuck++
			}
			tx.Wake(j)
			ex.NoteResent(j.Runner)
			again := tx.Now.Add(min(max(tx.Now.Sub(j.QueuedAt()), job.ResendAfter), maxResend))
			if stuck := j.WaitsSince().Add(job.StuckAfter); stuck.After(tx.Now) && stuck.Before(again) {
				again = stuck
			}
			tx.PutJobAt(r, again)
		default:
			tx.PutJobAt(r, j.Due()) // its lease was renewed, or the job has ended
		}
		return nil
	})
	if err == nil && suspect != nil {
		lost, serr := runners.Suspect(ctx, ex.Kernel, found.Runner, suspect)
		if serr != nil {
			ex.Logger.Warn("cannot record that an agent is lost; the next wake-up of the job tries again", "job", found.ID, "error", serr)
		}
		if lost {
			s.Turned++
			s.Lost++
		}
	}
	return moved && err == nil, err
}

// holds reports whether the session's agent has the lease of the job.
func holds(s store.Session, j store.Job) bool {
	return s.ID == j.Lease.Session || slices.Contains(s.Running, string(j.ID))
}

// ignores reports whether the agent of the session reports a free slot, but has neither
// claimed the queued job nor sent a heartbeat within job.ResendAfter. A live agent with a free
// place claims the job, and a live agent that has jobs sends heartbeats more often.
func ignores(s store.Session, j store.Job, now time.Time) bool {
	free := len(s.Running) < s.Capacity && !s.Draining && s.Customer.OrEnabled().TakesJobs() && s.Unhealthy == ""
	return free && s.LastSeen.Before(j.WaitsSince()) && now.Sub(j.WaitsSince()) >= job.ResendAfter
}

// agentLostAfter returns how long an agent with a claimed job may send no heartbeat
// before the job is lost: the lease TTL, or LostAfter if that is shorter.
func agentLostAfter(tx *kernel.Tx) time.Duration { return min(tx.LostAfter(), job.LeaseTTL) }

// firstLook returns when a claimed job is first checked. The claim counts as a
// heartbeat of its agent.
func firstLook(tx *kernel.Tx, j store.Job) time.Time { return j.Claimed.Add(agentLostAfter(tx)) }

// lookAfterClaim ends a claimed job whose agent has sent no heartbeat for
// agentLostAfter, and returns dead as true; otherwise it schedules the next check. The start timeout may be much
// longer, because the step's image is pulled first. Without this check the death of the
// agent would be noticed only after the start timeout.
func lookAfterClaim(tx *kernel.Tx, ctx context.Context, r store.Stored[store.Job], s *Swept) (dead bool, err error) {
	lastSeen, err := claimLastSeen(tx, r.V)
	if err != nil {
		return false, err
	}
	until := lastSeen.Add(agentLostAfter(tx))
	if held := tx.HeldUntil(); held.After(until) {
		until = held // agents could not report while the control plane was down
	}
	if until.After(tx.Now) {
		if due := r.V.Due(); due.Before(until) {
			until = due
		}
		tx.PutJobAt(r, until)
		return false, nil
	}
	s.Expired++
	return true, endJob(tx, r, job.Event{Kind: job.Die, Epoch: r.V.Lease.Epoch, Reason: fairlead.ReasonStartTimeout,
		Message: "its agent claimed it and was last seen more than " + agentLostAfter(tx).String() + " ago; the job did not start"})
}

// claimLastSeen returns when the agent that has the claimed job was last seen. The
// agent may have opened other sessions since the claim: claimLastSeen uses all sessions
// of the same instance, and sessions whose heartbeats list the job.
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

// endLogs ends the logs of lost attempts. The process that committed the loss does so
// right after its commit, but it may have died before. Readers would follow a log
// without an end forever.
func (ex *Execution) endLogs(ctx context.Context, j store.Job) error {
	for _, l := range j.OpenLogs {
		if err := endGivenUp(ctx, ex.Log, j.ID, l); err != nil {
			return err
		}
	}
	return nil
}

// overdueMessage returns the message of a job that passed a time limit.
func overdueMessage(e job.Event, j store.Job) string {
	switch {
	case e.Kind == job.Expire && j.State == job.Claimed:
		return "a runner claimed it, but it did not start within " + j.Terms.OrDefault().StartTimeout.String()
	case e.Kind == job.Expire:
		return "the lease expired: the step, its host or its network failed"
	case e.Reason == fairlead.ReasonPlanExpired:
		return "no runner claimed it before its plan expired"
	case j.State == job.Queued:
		return "no runner claimed it within " + job.QueueTimeout.String()
	}
	return "it ran for longer than " + j.Timeout().String()
}

// endJob applies an event that may end the job. If the job ended, endJob advances its
// deployment.
func endJob(tx *kernel.Tx, r store.Stored[store.Job], e job.Event) error {
	r, err := applyJob(tx, r, e)
	if err != nil {
		return err
	}
	if at := r.V.Due(); !at.IsZero() {
		tx.PutJobAt(r, at) // without a new due time the next page would contain the job again
	}
	return advanceDeployment(tx, r.V)
}

// noteStuck records that the queued job has waited longer than job.StuckAfter. It makes
// one record for each wait of the job, and reports whether it made the record now.
func noteStuck(tx *kernel.Tx, r *store.Stored[store.Job]) bool {
	since := r.V.WaitsSince()
	if tx.Now.Before(since.Add(job.StuckAfter)) || r.V.Stuck != nil && !r.V.Stuck.At.Before(since) {
		return false
	}
	r.V.Stuck = &store.Stuck{At: tx.Now, Version: r.Version + 1}
	tx.Logger.Warn("a job is stuck: no runner claims it", "job", r.V.ID, "runner", r.V.RunnerName, "since", since)
	return true
}
