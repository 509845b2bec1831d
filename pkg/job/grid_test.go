package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// grid is the expected next state for each state and event, and for every
// combination of values that a guard can check. The grid was written from the design
// and not copied from the table. So an error in the grid or in the table fails the
// test.
//
//	read/change  the operation does not change the customer's account, or changes it
//	left/last    attempts are left, or this was the last attempt
//	asked/late   a cancel stopped the job, or its timeout or no-output timeout did
//	any          the row covers both values
//	stale        refused: the lease has ended
//	-            refused: not possible
const grid = `
state      op     attempts stop   claim   release start     renew     cancel    timeout   succeed   fail   stopped  die      expire
queued     any    any      any    claimed stale   stale     stale     canceled  failed    stale     stale  stale    stale    stale
claimed    any    left     any    -       queued  running   -         canceled  -         -         -      -        queued   queued
claimed    any    last     any    -       queued  running   -         canceled  -         -         -      -        failed   failed
running    read   left     any    -       -       running   running   canceling canceling succeeded failed canceled queued   queued
running    read   last     any    -       -       running   running   canceling canceling succeeded failed canceled failed   failed
running    change any      any    -       -       running   running   canceling canceling succeeded failed canceled lost     lost
canceling  read   any      asked  -       -       canceling canceling canceling -         succeeded failed canceled canceled canceled
canceling  read   any      late   -       -       canceling canceling canceling -         succeeded failed failed   failed   failed
canceling  change any      asked  -       -       canceling canceling canceling -         succeeded failed canceled lost     lost
canceling  change any      late   -       -       canceling canceling canceling -         succeeded failed failed   lost     lost
succeeded  any    any      any    -       stale   stale     stale     -         -         stale     stale  stale    stale    stale
failed     any    any      any    -       stale   stale     stale     -         -         stale     stale  stale    stale    stale
canceled   any    any      any    -       stale   stale     stale     -         -         stale     stale  stale    stale    stale
lost       any    any      any    -       stale   stale     stale     -         -         stale     stale  stale    stale    stale
`

type gridRow struct {
	state              job.State
	op, attempts, stop string
	cells              map[job.Kind]string
}

func parseGrid(t *testing.T) []gridRow {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(grid), "\n")
	head := strings.Fields(lines[0])
	var rows []gridRow
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) != len(head) {
			t.Fatalf("%d cells in %q, want %d", len(f), line, len(head))
		}
		r := gridRow{state: job.State(f[0]), op: f[1], attempts: f[2], stop: f[3], cells: map[job.Kind]string{}}
		for i := 4; i < len(f); i++ {
			r.cells[job.Kind(head[i])] = f[i]
		}
		rows = append(rows, r)
	}
	return rows
}

// covers reports whether the row applies to j.
func (r gridRow) covers(j job.Job) bool {
	change := j.Operation == job.OpApply || j.Operation == job.OpDestroy || j.Operation == job.OpRun
	is := func(cell, yes, no string, cond bool) bool {
		return cell == "any" || cell == yes && cond || cell == no && !cond
	}
	return r.state == j.State &&
		is(r.op, "change", "read", change) &&
		is(r.attempts, "last", "left", j.Attempts >= 3) &&
		is(r.stop, "late", "asked", j.Stop == "timeout" || j.Stop == "no-output-timeout")
}

// allJobs returns a job in each state for each combination of values that a guard checks.
func allJobs() []job.Job {
	var all []job.Job
	for _, s := range job.States() {
		for _, op := range job.Operations() {
			for attempts := 1; attempts <= job.MaxAttempts; attempts++ {
				for _, stop := range []fairlead.Reason{"canceled", "deployment-canceled", "timeout", "no-output-timeout"} {
					j := job.New("job_1", op, t0)
					j.State, j.Attempts = s, attempts
					j.Lease = job.Lease{Epoch: 7, Session: "ses_1", Step: "step-1", Expires: after(45)}
					if s == job.Queued {
						j.Lease = job.Lease{Epoch: 7}
					}
					if s == job.Canceling {
						j.Stop, j.StopAsked = stop, t0
					}
					all = append(all, j)
				}
			}
		}
	}
	return all
}

func TestEveryTransitionMatchesTheDesign(t *testing.T) {
	rows := parseGrid(t)
	used := map[int]bool{}
	for _, j := range allJobs() {
		which := -1
		for i, r := range rows {
			if r.covers(j) {
				if which >= 0 {
					t.Fatalf("rows %d and %d of the grid both cover %s %s", which, i, j.State, j.Operation)
				}
				which = i
			}
		}
		if which < 0 {
			t.Fatalf("no row of the grid covers %s %s, attempt %d, stop %q", j.State, j.Operation, j.Attempts, j.Stop)
		}
		used[which] = true
		for _, k := range job.Kinds() {
			want, stated := rows[which].cells[k]
			if !stated {
				t.Fatalf("the grid has no column for %s", k)
			}
			e := job.Event{Kind: k, At: after(60), Epoch: 7, Session: "ses_2", Step: "step-1"}
			where := fmt.Sprintf("%s of a %s %s, attempt %d, stop %q", k, j.State, j.Operation, j.Attempts, j.Stop)
			switch got, err := job.Apply(j, e); {
			case want == "stale" || want == "-":
				if r := refused(t, j, e); r != map[string]string{"stale": "stale", "-": "impossible"}[want] {
					t.Errorf("%s: it is %s (%q), want it refused as %q", where, got.State, r, want)
				}
			case err != nil:
				t.Errorf("%s: %v, want %s", where, err, want)
			case got.State != job.State(want):
				t.Errorf("%s: it becomes %s, want %s", where, got.State, want)
			}
		}
	}
	for i, r := range rows {
		if !used[i] {
			t.Errorf("row %d of the grid (%s %s %s %s) describes no job", i, r.state, r.op, r.attempts, r.stop)
		}
		if len(r.cells) != len(job.Kinds()) {
			t.Errorf("row %d of the grid has %d events, there are %d", i, len(r.cells), len(job.Kinds()))
		}
	}
}

func TestAnotherEpochIsAlwaysStale(t *testing.T) {
	leased := map[job.Kind]bool{
		job.Claim: false, job.Cancel: false, job.TimeOut: false, // sent by the control plane or a person
		job.Release: true, job.Start: true, job.Renew: true, job.Succeed: true, job.Fail: true,
		job.Stopped: true, job.Die: true, job.Expire: true,
	}
	for _, k := range job.Kinds() {
		if want, known := leased[k]; !known || k.Leased() != want {
			t.Fatalf("%s must carry the epoch: %t", k, k.Leased())
		}
		if !k.Leased() {
			continue
		}
		for _, j := range allJobs() {
			for _, epoch := range []int64{0, 6, 8, -7} {
				if got := refused(t, j, job.Event{Kind: k, At: after(60), Epoch: epoch, Step: "step-1"}); got != "stale" {
					t.Fatalf("%s at epoch %d of a %s job at epoch 7 is %q, want stale", k, epoch, j.State, got)
				}
			}
		}
	}
}

func TestEveryTransitionIsReachable(t *testing.T) {
	type cell struct {
		from job.State
		on   job.Kind
	}
	closed := map[cell]bool{}
	for _, tr := range job.Transitions() {
		c := cell{tr.From, tr.On}
		if closed[c] {
			t.Errorf("%s on %s if %q can never be taken: a row before it always holds", tr.From, tr.On, tr.If)
		}
		closed[c] = closed[c] || tr.If == job.Always
		if tr.From.Final() {
			t.Errorf("%s is final, but has a transition on %s", tr.From, tr.On)
		}
		if tr.On.Leased() && !tr.From.Leased() {
			t.Errorf("%s on %s can never be taken: no session holds the job", tr.From, tr.On)
		}
	}
}
