package job_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

func TestRenewedLeaseDoesNotExpire(t *testing.T) {
	j := must(t, job.New("job_1", job.OpApply, t0), claim(0), start(1, 1))
	expire, ok := j.Overdue(after(46))
	if !ok {
		t.Fatal("the sweep sees nothing to do at 46 s")
	}
	j = must(t, j, job.Event{Kind: job.Renew, At: after(46), Epoch: 1}) // committed first
	if got := refused(t, j, expire); got != "impossible" {
		t.Errorf("the late expiry is %q, want impossible: the lease was renewed", got)
	}
}

func TestRepeatedWakeUpDoesNotShortenPause(t *testing.T) {
	j := must(t, job.New("job_1", job.OpPlan, t0), claim(0), job.Event{Kind: job.Die, At: after(1), Epoch: 1})
	if got := refused(t, j, claim(1)); got != "impossible" {
		t.Errorf("a claim within the pause is %q, want impossible: all attempts would be used up at once", got)
	}
	must(t, j, claim(2))
}

func TestStepThatRenewsForeverIsEnded(t *testing.T) {
	for op, want := range map[job.Operation]job.State{job.OpPlan: job.Failed, job.OpApply: job.Lost} {
		j := must(t, job.New("job_1", op, t0), claim(0), start(0, 1))
		at := t0
		for limit := t0.Add(24 * time.Hour); !j.State.Final(); at = at.Add((job.Terms{}).RenewEvery()) {
			if at.After(limit) {
				t.Fatalf("a %s whose step never ends is %s after a day", op, j.State)
			}
			if !at.Before(j.Due()) {
				if e, ok := j.Overdue(at); ok {
					j = must(t, j, e)
					continue
				}
			}
			j = must(t, j, job.Event{Kind: job.Renew, At: at, Epoch: 1})
		}
		if j.State != want {
			t.Errorf("a %s whose step never ends is %s for %q, want %s", op, j.State, j.Reason, want)
		}
		if limit := t0.Add(op.Timeout() + job.Grace + (job.Terms{}).StopTTL() + time.Minute); j.Finished.After(limit) {
			t.Errorf("a %s whose step never ends is over after %s", op, j.Finished.Sub(t0))
		}
	}
}

func TestTimedOutPlanFailsAndIsNotCanceled(t *testing.T) {
	for _, k := range []job.Kind{job.Stopped, job.Die, job.Expire} {
		j := must(t, job.New("job_1", job.OpPlan, t0), claim(0), start(0, 1),
			job.Event{Kind: job.TimeOut, At: after(1)}, job.Event{Kind: k, At: after(50), Epoch: 1})
		if j.State != job.Failed || j.Reason != fairlead.ReasonTimeout {
			t.Errorf("after %s it is %s for %q, want failed for timeout", k, j.State, j.Reason)
		}
	}
}

func TestClockSetBackDoesNotShortenLease(t *testing.T) {
	j := must(t, job.New("job_1", job.OpApply, t0), claim(100), start(100, 1))
	for _, e := range []job.Event{start(0, 1), {Kind: job.Renew, At: t0, Epoch: 1}} {
		if got := must(t, j, e); got.Lease.Expires.Before(j.Lease.Expires) {
			t.Errorf("%s with an old time shortens the lease by %s", e.Kind, j.Lease.Expires.Sub(got.Lease.Expires))
		}
	}
}
