package job_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// history applies random events to a job: any event at any time. The event's epoch is
// the current epoch, an old epoch, or an epoch that no claim returned. After each
// event history checks the invariants of a job.
type history struct {
	j       job.Job
	now     time.Time
	latest  time.Time // the latest value of now
	started int       // how often a tool may have started
	ran     bool      // whether a tool has started
}

func (h *history) step(t *rapid.T) {
	h.now = h.now.Add(time.Duration(rapid.Int64Range(-5, 90).Draw(t, "seconds")) * time.Second)
	e := job.Event{
		Kind:    rapid.SampledFrom(job.Kinds()).Draw(t, "event"),
		At:      h.now,
		Epoch:   h.j.Lease.Epoch - rapid.SampledFrom([]int64{0, 0, 0, 0, 1, 2, -1}).Draw(t, "epochs behind"),
		Session: "ses_1",
		Step:    rapid.SampledFrom([]string{"step-1", "step-1", "step-2"}).Draw(t, "step"),
		Reason:  rapid.SampledFrom([]fairlead.Reason{"", "why"}).Draw(t, "reason"),
	}
	h.apply(t, e)
}

func (h *history) apply(t *rapid.T, e job.Event) {
	was := h.j
	now, err := job.Apply(was, e)
	_, stale := errors.AsType[*job.StaleError](err)
	switch {
	case err != nil && !reflect.DeepEqual(now, was):
		t.Fatalf("%s was refused, but changed the job", e.Kind)
	case was.State.Final() && err == nil:
		t.Fatalf("%s moved a %s job to %s", e.Kind, was.State, now.State)
	case e.Kind.Leased() && e.Epoch != was.Lease.Epoch && !stale:
		t.Fatalf("%s at epoch %d was not stale at epoch %d: %v", e.Kind, e.Epoch, was.Lease.Epoch, err)
	case now.Lease.Epoch < was.Lease.Epoch:
		t.Fatalf("%s changed the epoch from %d to %d", e.Kind, was.Lease.Epoch, now.Lease.Epoch)
	case now.Lease.Epoch != was.Lease.Epoch && (e.Kind != job.Claim || now.Lease.Epoch != was.Lease.Epoch+1):
		t.Fatalf("%s changed the epoch from %d to %d: only a claim raises it, by one", e.Kind, was.Lease.Epoch, now.Lease.Epoch)
	}
	h.j = now
	if h.now.After(h.latest) {
		h.latest = h.now
	}
	if err == nil && e.Kind == job.Start && was.State == job.Claimed {
		h.started++
		h.ran = true
	}
	h.check(t)
}

func (h *history) check(t *rapid.T) {
	j := h.j
	switch {
	case j.Operation.Mutates() && h.ran && (j.State == job.Queued || j.State == job.Claimed):
		t.Fatalf("an %s that ran is %s again", j.Operation, j.State)
	case j.Operation.Mutates() && h.started > 1:
		t.Fatalf("an %s was started %d times", j.Operation, h.started)
	case h.started > job.MaxAttempts:
		t.Fatalf("a %s was started %d times", j.Operation, h.started)
	case j.Attempts < 0 || j.Attempts > job.MaxAttempts:
		t.Fatalf("a job counts %d attempts", j.Attempts)
	case j.State.Leased() && (j.Lease.Session == "" || j.Lease.Expires.IsZero()):
		t.Fatalf("a %s job is leased to no session or without an end: %+v", j.State, j.Lease)
	case j.State == job.Queued && (j.Lease.Session != "" || j.Lease.Step != "" || !j.Lease.Expires.IsZero()):
		t.Fatalf("a queued job is still leased: %+v", j.Lease)
	case (j.State == job.Running || j.State == job.Canceling) && j.Lease.Expires.After(h.latest.Add(j.Terms.OrDefault().LeaseTTL)):
		t.Fatalf("a %s job is leased for longer than one lease TTL: until %s after %s", j.State, j.Lease.Expires, h.latest)
	case j.State == job.Canceling && (j.Stop == "" || j.StopAsked.IsZero()):
		t.Fatal("a job is canceling without a reason or a start time")
	case j.State.Final() == j.Finished.IsZero():
		t.Fatalf("a %s job finished at %s", j.State, j.Finished)
	case j.State.Final() != j.Due().IsZero():
		t.Fatalf("a %s job is due at %s", j.State, j.Due())
	case j.State.Final() && j.State != job.Failed && (j.Reason == "") != (j.State == job.Succeeded):
		t.Fatalf("a %s job has the reason %q", j.State, j.Reason)
	}
}

func draw(t *rapid.T) *history {
	h := &history{now: t0, latest: t0}
	h.j = job.New("job_1", rapid.SampledFrom(job.Operations()).Draw(t, "operation"), t0)
	h.j.Terms.StartTimeout = rapid.SampledFrom([]time.Duration{0, 5 * time.Minute}).Draw(t, "time to start")
	for range rapid.IntRange(0, 40).Draw(t, "events") {
		h.step(t)
	}
	return h
}

func TestInvariantsHoldAfterRandomEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { draw(t) })
}

func TestEveryJobEndsOnceItsRunnerIsHealthy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := draw(t)
		for range 4 {
			if h.now.Before(h.j.NotBefore) {
				h.now = h.j.NotBefore
			}
			next, done := map[job.State]job.Kind{
				job.Queued: job.Claim, job.Claimed: job.Start, job.Running: job.Succeed, job.Canceling: job.Stopped,
			}[h.j.State]
			if !done {
				return
			}
			h.apply(t, job.Event{Kind: next, At: h.now, Epoch: h.j.Lease.Epoch, Session: "ses_2", Step: "step-9"})
		}
		if !h.j.State.Final() {
			t.Fatalf("a healthy runner leaves it %s", h.j.State)
		}
	})
}

// Agents claim the job. Some steps start and renew the lease. No step reports its
// end, so only the sweep can end the job.
func TestSweepEndsEveryJobWithoutReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := draw(t)
		renews := rapid.Bool().Draw(t, "steps renew forever")
		claims := 0
		limit := h.now.Add(job.QueueTimeout + job.MaxAttempts*(3*time.Hour))
		for !h.j.State.Final() {
			if h.now.After(limit) {
				t.Fatalf("it is still %s after %s", h.j.State, h.now.Sub(t0))
			}
			if e, ok := h.j.Overdue(h.now); ok {
				h.apply(t, e)
				continue
			}
			switch {
			case h.j.State == job.Queued && !h.now.Before(h.j.NotBefore):
				claims++
				h.apply(t, job.Event{Kind: job.Claim, At: h.now, Session: "ses_2"})
			case h.j.State == job.Claimed && renews:
				h.apply(t, job.Event{Kind: job.Start, At: h.now, Epoch: h.j.Lease.Epoch, Step: "step-9"})
			case (h.j.State == job.Running || h.j.State == job.Canceling) && renews:
				h.apply(t, job.Event{Kind: job.Renew, At: h.now, Epoch: h.j.Lease.Epoch})
			}
			h.now = h.now.Add((job.Terms{}).RenewEvery())
		}
		if claims > job.MaxAttempts {
			t.Fatalf("it was claimed %d times by runners that never report", claims)
		}
	})
}
