package job_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// after returns the time that is the given seconds after t0.
func after(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// must applies the events. It fails the test if the job refuses one.
func must(t *testing.T, j job.Job, events ...job.Event) job.Job {
	t.Helper()
	for _, e := range events {
		var err error
		if j, err = job.Apply(j, e); err != nil {
			t.Fatalf("%s of a %s job: %v", e.Kind, j.State, err)
		}
	}
	return j
}

// refused returns how the job refuses the event e: "stale", "impossible", or "" if the
// job accepts the event.
func refused(t *testing.T, j job.Job, e job.Event) string {
	t.Helper()
	after, err := job.Apply(j, e)
	if err == nil {
		return ""
	}
	if !reflect.DeepEqual(after, j) {
		t.Errorf("%s was refused, but changed the job", e.Kind)
	}
	if _, ok := errors.AsType[*job.StaleError](err); ok {
		return "stale"
	}
	if _, ok := errors.AsType[*job.TransitionError](err); ok {
		return "impossible"
	}
	t.Fatalf("%s is refused with an error of another kind: %v", e.Kind, err)
	return ""
}

func claim(at int) job.Event {
	return job.Event{Kind: job.Claim, At: after(at), Session: "ses_1"}
}

func start(at int, epoch int64) job.Event {
	return job.Event{Kind: job.Start, At: after(at), Epoch: epoch, Step: "step-1"}
}

func TestPlanIsRepeatedAfterItsStepDied(t *testing.T) {
	j := job.New("job_1", job.OpPlan, t0)
	if j.State != job.Queued || j.Lease.Epoch != 0 || !j.Due().Equal(after(15)) {
		t.Fatalf("a new job is %s at epoch %d, due at %s", j.State, j.Lease.Epoch, j.Due())
	}

	j = must(t, j, claim(1))
	if j.Lease.Epoch != 1 || j.Attempts != 1 || j.Lease.Session != "ses_1" || !j.Lease.Expires.Equal(after(21)) {
		t.Errorf("the first claim gives %+v after %d attempts, want epoch 1 of ses_1 for 20 s", j.Lease, j.Attempts)
	}
	j = must(t, j, start(2, 1))
	if !j.Lease.Expires.Equal(after(47)) || !j.Started.Equal(after(2)) || j.Lease.Step != "step-1" {
		t.Errorf("the start gives %+v, want step-1 for 45 s", j.Lease)
	}
	j = must(t, j, job.Event{Kind: job.Renew, At: after(17), Epoch: 1})
	if !j.Due().Equal(after(62)) {
		t.Errorf("after a renewal at 17 s the job is due at %s, want 62 s", j.Due().Sub(t0))
	}

	code := 137
	j = must(t, j, job.Event{Kind: job.Die, At: after(20), Epoch: 1, Reason: "killed", Message: "out of memory?", ExitCode: &code})
	if j.State != job.Queued || j.Reason != "killed" || j.ExitCode == nil || *j.ExitCode != 137 {
		t.Errorf("after the death the job is %s for %q: its reason must show why it is queued again", j.State, j.Reason)
	}
	if j.Lease.Session != "" || j.Lease.Step != "" || !j.Lease.Expires.IsZero() || j.Lease.Epoch != 1 {
		t.Errorf("the dead step's lease is still there: %+v", j.Lease)
	}
	if !j.NotBefore.Equal(after(21)) || !j.Due().Equal(after(36)) {
		t.Errorf("it may run from %s and is due at %s, want 21 s and 36 s", j.NotBefore.Sub(t0), j.Due().Sub(t0))
	}

	j = must(t, j, claim(21))
	if j.Lease.Epoch != 2 || j.Attempts != 2 || j.Reason != "" || j.Message != "" || j.ExitCode != nil || !j.Started.IsZero() {
		t.Errorf("the second attempt begins as %+v", j)
	}
	if got := refused(t, j, job.Event{Kind: job.Succeed, At: after(22), Epoch: 1}); got != "stale" {
		t.Errorf("the first step's late success is %q, want stale", got)
	}
	j = must(t, j, start(22, 2), job.Event{Kind: job.Succeed, At: after(30), Epoch: 2})
	if j.State != job.Succeeded || !j.Finished.Equal(after(30)) || !j.Due().IsZero() || j.Reason != "" {
		t.Errorf("it ends as %s at %s, due %s, reason %q", j.State, j.Finished, j.Due(), j.Reason)
	}
}

func TestWhyAJobEnded(t *testing.T) {
	run := []job.Event{claim(0), start(1, 1)}
	leased := func(k job.Kind, at int, reason fairlead.Reason) job.Event {
		return job.Event{Kind: k, At: after(at), Epoch: 1, Reason: reason, Message: "reported"}
	}
	cancel := job.Event{Kind: job.Cancel, At: after(2), Reason: "deployment-canceled"}
	timeout := job.Event{Kind: job.TimeOut, At: after(2)}
	noOutput := job.Event{Kind: job.TimeOut, At: after(2), Reason: "no-output-timeout"}
	expire := func(at int, epoch int64) job.Event { return job.Event{Kind: job.Expire, At: after(at), Epoch: epoch} }
	startedOnce := append(run, expire(60, 1), claim(70), expire(100, 2), claim(110), expire(140, 3))
	for name, c := range map[string]struct {
		op     job.Operation
		events []job.Event
		state  job.State
		reason fairlead.Reason
	}{
		"no agent claims it for a day":               {job.OpPlan, []job.Event{{Kind: job.TimeOut, At: after(86400)}}, job.Failed, "queue-timeout"},
		"canceled while queued: keeps the reason":    {job.OpPlan, []job.Event{cancel}, job.Canceled, "deployment-canceled"},
		"canceled without a reason":                  {job.OpPlan, []job.Event{{Kind: job.Cancel, At: t0}}, job.Canceled, "canceled"},
		"canceled between claim and start":           {job.OpApply, []job.Event{claim(0), cancel}, job.Canceled, "deployment-canceled"},
		"tool failed: keeps the plugin's reason":     {job.OpPlan, append(run, leased(job.Fail, 3, "tool-failed")), job.Failed, "tool-failed"},
		"step stopped on its machine":                {job.OpPlan, append(run, leased(job.Stopped, 3, "")), job.Canceled, "canceled"},
		"canceled, step stopped":                     {job.OpApply, append(run, cancel, leased(job.Stopped, 3, "interrupted")), job.Canceled, "deployment-canceled"},
		"canceled plan, step died":                   {job.OpPlan, append(run, cancel, leased(job.Die, 3, "killed")), job.Canceled, "deployment-canceled"},
		"canceled apply, step died: outcome unknown": {job.OpApply, append(run, cancel, leased(job.Die, 3, "killed")), job.Lost, "killed"},
		"canceled, tool failed first":                {job.OpApply, append(run, cancel, leased(job.Fail, 3, "tool-failed")), job.Failed, "tool-failed"},
		"canceled, tool succeeded first":             {job.OpApply, append(run, cancel, leased(job.Succeed, 3, "")), job.Succeeded, ""},
		"timeout, step stopped":                      {job.OpPlan, append(run, timeout, leased(job.Stopped, 3, "")), job.Failed, "timeout"},
		"timeout, then canceled by a person":         {job.OpPlan, append(run, timeout, cancel, leased(job.Stopped, 3, "")), job.Failed, "timeout"},
		"no-output timeout, step stopped":            {job.OpApply, append(run, noOutput, leased(job.Stopped, 3, "")), job.Failed, "no-output-timeout"},
		"no-output timeout, step of a plan died":     {job.OpPlan, append(run, noOutput, leased(job.Die, 3, "killed")), job.Failed, "no-output-timeout"},
		"no-output timeout, step of an apply died":   {job.OpApply, append(run, noOutput, leased(job.Die, 3, "killed")), job.Lost, "killed"},
		"claimed three times, never started":         {job.OpApply, []job.Event{claim(0), expire(20, 1), claim(30), expire(50, 2), claim(60), expire(80, 3)}, job.Failed, "start-timeout"},
		"started once, then never in time: poison":   {job.OpPlan, startedOnce, job.Failed, "poison"},
		"step of an apply died without a report":     {job.OpApply, append(run, leased(job.Die, 3, "")), job.Lost, "step-died"},
		"lease of a destroy expired":                 {job.OpDestroy, append(run, leased(job.Expire, 46, "")), job.Lost, "lease-expired"},
	} {
		t.Run(name, func(t *testing.T) {
			j := must(t, job.New("job_1", c.op, t0), c.events...)
			if j.State != c.state || j.Reason != c.reason {
				t.Errorf("it is %s for %q, want %s for %q", j.State, j.Reason, c.state, c.reason)
			}
		})
	}
}

func TestJobThatKillsEveryStepFailsAsPoison(t *testing.T) {
	j := job.New("job_1", job.OpPlan, t0)
	at := 0
	for epoch := int64(1); epoch <= job.MaxAttempts; epoch++ {
		if j.State != job.Queued {
			t.Fatalf("before attempt %d it is %s", epoch, j.State)
		}
		at += 100
		j = must(t, j, claim(at), start(at, epoch), job.Event{Kind: job.Die, At: after(at), Epoch: epoch, Reason: "killed", Message: "last report"})
	}
	if j.State != job.Failed || j.Reason != fairlead.ReasonPoison || j.Message != "last report" || j.Attempts != job.MaxAttempts {
		t.Errorf("after %d attempts it is %s for %q (%q)", j.Attempts, j.State, j.Reason, j.Message)
	}
}

func TestReleaseCostsNoAttemptAndNoPause(t *testing.T) {
	j := job.New("job_1", job.OpApply, t0)
	for epoch := int64(1); epoch <= 3*job.MaxAttempts; epoch++ {
		j = must(t, j, claim(5), job.Event{Kind: job.Release, At: after(5), Epoch: epoch})
		if j.State != job.Queued || j.Attempts != 0 || j.NotBefore.After(after(5)) {
			t.Fatalf("after release %d it is %s after %d attempts, not before %s", epoch, j.State, j.Attempts, j.NotBefore)
		}
		if j.Lease.Epoch != epoch {
			t.Fatalf("the epoch is %d, want %d: a step that was started nevertheless must stay stale", j.Lease.Epoch, epoch)
		}
	}
}

func TestStartIsRepeatableByTheSameStepOnly(t *testing.T) {
	running := must(t, job.New("job_1", job.OpApply, t0), claim(0), start(1, 1))
	other := job.Event{Kind: job.Start, At: after(3), Epoch: 1, Step: "step-2"}
	for _, j := range []job.Job{running, must(t, running, job.Event{Kind: job.Cancel, At: after(2)})} {
		again := must(t, j, start(3, 1))
		if again.State != j.State || !again.Started.Equal(after(1)) || again.Lease.Step != "step-1" {
			t.Errorf("a %s job whose Start is repeated becomes %s, started %s: a repeated Start must change neither", j.State, again.State, again.Started)
		}
		if !again.Lease.Expires.Equal(after(48)) {
			t.Errorf("the repeated Start renews until %s, want 48 s", again.Lease.Expires.Sub(t0))
		}
		_, err := job.Apply(j, other)
		if got := refused(t, j, other); got != "stale" {
			t.Fatalf("a second step of a %s job is %q, want stale: two tools would run", j.State, got)
		}
		if want := "job job_1 is " + string(j.State) + ": another step holds its lease"; err.Error() != want {
			t.Errorf("the error of the second step is %q, want %q", err, want)
		}
	}
}

func TestPoisonJobKeepsEachDeath(t *testing.T) {
	code := 137
	long := strings.Repeat("x", 5000)
	j := must(t, job.New("job_1", job.OpPlan, t0),
		claim(0), start(1, 1), job.Event{Kind: job.Renew, At: after(10), Epoch: 1},
		job.Event{Kind: job.Die, At: after(12), Epoch: 1, Reason: "step-out-of-memory", Message: long, ExitCode: &code})
	once := j
	j = must(t, j, claim(20), job.Event{Kind: job.Expire, At: after(40), Epoch: 2, Message: "no renewal"})
	again := must(t, once, claim(21), job.Event{Kind: job.Release, At: after(22), Epoch: 2}) // must not write into the array that the variable once uses
	j = must(t, j, claim(50), start(51, 3), job.Event{Kind: job.Die, At: after(52), Epoch: 3, Reason: "step-killed"})
	if j.State != job.Failed || j.Reason != fairlead.ReasonPoison || len(j.Deaths) != job.MaxAttempts || len(again.Deaths) != 1 {
		t.Fatalf("it is %s for %q after %d deaths", j.State, j.Reason, len(j.Deaths))
	}
	first := j.Deaths[0]
	if len(first.Message) > 500 || first.ExitCode != &code || !first.Started.Equal(after(1)) {
		t.Errorf("the first death is %+v", first)
	}
	for i, want := range []struct {
		reason       fairlead.Reason
		lastSeen, at time.Time
	}{
		{"step-out-of-memory", after(10), after(12)},
		{fairlead.ReasonStartTimeout, after(20), after(40)}, // claimed, but never started
		{"step-killed", after(51), after(52)},
	} {
		if d := j.Deaths[i]; d.Epoch != int64(i+1) || d.Session != "ses_1" || d.Reason != want.reason || !d.LastSeen.Equal(want.lastSeen) || !d.At.Equal(want.at) {
			t.Errorf("death %d is %+v, want %+v", i+1, d, want)
		}
	}
}

func TestLastSeenOfCancelingStepIsNotGuessed(t *testing.T) {
	j := must(t, job.New("job_1", job.OpApply, t0), claim(0), start(1, 1), job.Event{Kind: job.Cancel, At: after(2)},
		job.Event{Kind: job.Renew, At: after(230), Epoch: 1}, job.Event{Kind: job.Expire, At: after(242), Epoch: 1})
	if j.State != job.Lost || len(j.Deaths) != 1 || !j.Deaths[0].LastSeen.IsZero() {
		t.Errorf("it is %s, its death %+v", j.State, j.Deaths)
	}
}

func TestLeaseAfterStartIgnoresLongStartTimeout(t *testing.T) {
	j := job.New("job_1", job.OpApply, t0)
	j.Terms.StartTimeout = 5 * time.Minute // for a runner that pulls images
	j = must(t, j, claim(0), start(5, 1))
	if want := after(5).Add(job.LeaseTTL); !j.Lease.Expires.Equal(want) || !j.Due().Equal(want) {
		t.Errorf("it is leased until %s and due at %s, want %s", j.Lease.Expires, j.Due(), want)
	}
	j = must(t, j, job.Event{Kind: job.Expire, At: j.Due(), Epoch: 1})
	if j.State != job.Lost || !j.Deaths[0].LastSeen.Equal(after(5)) {
		t.Errorf("it is %s, last seen at %s", j.State, j.Deaths[0].LastSeen)
	}
}

func TestErrorsNameJobStateAndEpoch(t *testing.T) {
	j := must(t, job.New("job_1", job.OpPlan, t0), claim(0), job.Event{Kind: job.Cancel, At: after(1)})
	for want, e := range map[string]job.Event{
		"job job_1 is canceled: its lease has ended":                     start(2, 1),
		"epoch 7 of job job_1 is stale: it is canceled at epoch 1":       start(2, 7),
		"job job_1 is canceled: claim is not possible":                   claim(2),
		"job job_1 is canceled: cancel is not possible":                  {Kind: job.Cancel, At: after(2)},
		"epoch 0 of job job_1 is stale: it is canceled at epoch 1":       {Kind: job.Expire, At: after(99)},
		"job job_1 is canceled: evaporate is not possible":               {Kind: "evaporate"},
		"job job_1 is canceled: timeout is not possible":                 {Kind: job.TimeOut},
		"epoch 1000000 of job job_1 is stale: it is canceled at epoch 1": {Kind: job.Renew, Epoch: 1_000_000},
	} {
		if _, err := job.Apply(j, e); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %q", e.Kind, err, want)
		}
	}
}

func TestBackoffGrowsFourfoldUpToOneMinute(t *testing.T) {
	for attempts, want := range []time.Duration{
		0: time.Second, // out of range: the shortest pause, not a panic
		1: time.Second, 2: 4 * time.Second, 3: 16 * time.Second, 4: time.Minute, 5: time.Minute,
	} {
		if got := job.Backoff(attempts); got != want {
			t.Errorf("after attempt %d the pause is %s, want %s", attempts, got, want)
		}
	}
	if got := job.Backoff(1 << 30); got != time.Minute {
		t.Errorf("after very many attempts the pause is %s", got)
	}
}

func TestDueAndOverdue(t *testing.T) {
	queued := job.New("job_1", job.OpCheck, t0)
	planned := queued
	planned.NotAfter = after(30)
	claimed := must(t, queued, claim(1))
	running := must(t, claimed, start(2, 1))
	renewedLate := must(t, running, job.Event{Kind: job.Renew, At: after(170), Epoch: 1})
	canceling := must(t, running, job.Event{Kind: job.Cancel, At: after(3)})
	paused := must(t, running, job.Event{Kind: job.Die, At: after(10), Epoch: 1})
	for name, c := range map[string]struct {
		j       job.Job
		due     int
		at      int
		overdue job.Kind
	}{
		"queued: its wake-up may be lost":          {queued, 15, 15, ""},
		"queued for a day less a second":           {queued, 15, 86399, ""},
		"queued for a day":                         {queued, 15, 86400, job.TimeOut},
		"an apply before its plan expires":         {planned, 15, 29, ""},
		"an apply whose plan expired":              {planned, 15, 30, job.TimeOut},
		"before a retry: due after the pause":      {paused, 26, 26, ""},
		"claimed, start timeout not over":          {claimed, 21, 20, ""},
		"claimed, never started":                   {claimed, 21, 21, job.Expire},
		"running, lease not expired":               {running, 47, 46, ""},
		"running, lease expired":                   {running, 47, 47, job.Expire},
		"running, renewed, timeout and Grace over": {renewedLate, 182, 182, job.TimeOut},
		"running, renewed, not over yet":           {renewedLate, 182, 181, ""},
		"running, timeout over and lease expired":  {renewedLate, 182, 215, job.Expire},
		"canceling, lease not expired":             {canceling, 47, 46, ""},
		"canceling, lease expired":                 {canceling, 47, 47, job.Expire},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.j.Due(); !got.Equal(after(c.due)) {
				t.Errorf("it is due at %s, want %d s", got.Sub(t0), c.due)
			}
			e, ok := c.j.Overdue(after(c.at))
			if e.Kind != c.overdue || ok != (c.overdue != "") {
				t.Fatalf("at %d s it is overdue as %q, want %q", c.at, e.Kind, c.overdue)
			}
			if ok {
				must(t, c.j, e)
			}
		})
	}
	done := must(t, canceling, job.Event{Kind: job.Stopped, At: after(4), Epoch: 1})
	if _, ok := done.Overdue(after(1 << 30)); ok || !done.Due().IsZero() {
		t.Error("a finished job is due: the sweep would check it forever")
	}
}

func TestOnlyApplyDestroyAndRunMutate(t *testing.T) {
	want := map[job.Operation]bool{
		job.OpPlan: false, job.OpApply: true, job.OpPlanDestroy: false, job.OpDestroy: true, job.OpPlanRun: false, job.OpRun: true, job.OpCheck: false, job.OpAgentLog: false, job.OpBuild: false, job.OpMigrateState: false,
	}
	if len(job.Operations()) != len(want) {
		t.Fatalf("there are %d operations, the test knows %d", len(job.Operations()), len(want))
	}
	for _, op := range job.Operations() {
		if m, known := want[op]; !known || op.Mutates() != m {
			t.Errorf("%s mutates: %t", op, op.Mutates())
		}
		if op.Timeout() <= 0 || op.Timeout() > 2*time.Hour {
			t.Errorf("%s may run for %s", op, op.Timeout())
		}
	}
}

// An apply can wait for a runner for a day. The account may have changed since its plan.
func TestExpiredPlanIsNotClaimed(t *testing.T) {
	j := job.New("job_1", job.OpApply, t0)
	j.NotAfter = after(30)
	if _, err := job.Apply(j, claim(30)); err == nil {
		t.Error("an agent claims the job at the time at which its plan expires")
	}
	must(t, j, claim(29))
	e, _ := j.Overdue(after(30))
	if j = must(t, j, e); j.State != job.Failed || j.Reason != fairlead.ReasonPlanExpired {
		t.Errorf("the job is %s for %q", j.State, j.Reason)
	}
}
