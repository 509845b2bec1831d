package control_test

import (
	"context"
	"hash/crc32"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// scopes is a Granter that notes what it was asked for.
type scopes struct{ last identity.Scope }

func (g *scopes) Grant(_ context.Context, s identity.Scope) (identity.Access, error) {
	g.last = s
	return identity.Access{}, nil
}

// A job prints without end. Its log is cut, is shown as cut, and the job goes on and succeeds. The log of another runner is
// not cut, and an hour later the runner has a budget again.
func TestLogOfANoisyRunnerIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		access := &scopes{}
		p.LogBudget, p.Intervals, p.Access = joblog.Budget{Burst: 6400, PerHour: 1000}, control.Metered(), access
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "deploy-acme")
		j, h := p.begin()
		write := func(h control.Holder) (size int64, err error) {
			for range 1000 {
				next, err := p.AppendLog(p.ctx, h, size, []byte(strings.Repeat("x", 50)))
				if err != nil {
					return size, err
				}
				size = next
			}
			return size, nil
		}
		granted := func(h control.Holder) (withLog bool) {
			t.Helper()
			if _, err := p.AttemptAccess(p.ctx, h); err != nil {
				t.Fatal(err)
			}
			return !access.last.NoLog
		}
		if !granted(h) {
			t.Error("a runner with a whole budget gets no access to its log")
		}
		size, err := write(h)
		if fairlead.CodeOf(err) != fairlead.CodeLogCut || size != 6500 {
			t.Fatalf("after %d bytes an append gets %v, want log-cut after 6500", size, err)
		}
		if granted(h) {
			t.Error("a runner without a budget gets access to its log")
		}
		if !p.LogTerms(p.ctx, h).Cut {
			t.Error("the answer to a renewal does not report the cut")
		}
		k, err := p.ReadLog(p.ctx, org, j.ID, h.Epoch, size, 0)
		if err != nil || !k.Cut || k.Done {
			t.Errorf("a reader of the running job gets %+v, %v", k, err)
		}
		// The step has more bytes than the log accepts. The report must not wait for them.
		rep := control.Report{Outcome: control.OutcomeFailed, Reason: fairlead.ReasonToolFailed, LogSize: size + 9000, LogCRC32: 7}
		if err := p.FinishJob(p.ctx, h, rep); err != nil {
			t.Fatal(err)
		}
		logs, err := p.Log.Streams(p.ctx, string(j.ID))
		if err != nil || len(logs) != 1 || !logs[0].Cut || !logs[0].Truncated || logs[0].Size != size {
			t.Errorf("the log is %+v, %v", logs, err)
		}
		if got, err := p.Job(p.ctx, org, j.ID); err != nil || got.State != job.Failed || got.Reason != fairlead.ReasonToolFailed {
			t.Errorf("the job ended as %s for %s, %v; want its own end", got.State, got.Reason, err)
		}

		p.must("make another runner", func() error { return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "quiet", Storage: "http"}) })
		noisy := p.session
		p.enrolAt("quiet")
		if _, err := p.CheckRunner(p.ctx, me, "quiet", ""); err != nil {
			t.Fatal(err)
		}
		_, quiet := p.begin()
		if size, err := write(quiet); size != 6500 || err == nil { // its whole budget
			t.Errorf("the log of another runner has %d bytes, %v; want 6500", size, err)
		}

		p.session = noisy
		p.sleep(time.Hour)
		p.enrolAt("local")
		if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
			t.Fatal(err)
		}
		_, later := p.begin()
		if _, err := p.AppendLog(p.ctx, later, 0, []byte(strings.Repeat("y", 900))); err != nil {
			t.Errorf("an hour later the runner has no budget: %v", err)
		}
		if infos, err := p.Log.Streams(p.ctx, string(later.Job)); err != nil || infos[0].Cut || infos[0].CRC32 != crc32.ChecksumIEEE([]byte(strings.Repeat("y", 900))) {
			t.Errorf("an hour later the log is %+v, %v", infos, err)
		}
	})
}
