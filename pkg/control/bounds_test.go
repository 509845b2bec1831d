package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestTooLargeInputIsACallerError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		large, err := json.Marshal(strings.Repeat("x", 400_000))
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop",
			Inputs: map[string]json.RawMessage{"password": large}}, "")
		if fairlead.KindOf(err) != fairlead.KindTooLarge || fairlead.CodeOf(err) != "record-too-large" {
			t.Errorf("it is refused with %v", err)
		}
	})
}

func TestLeaseTokenOfAnEndedJobReadsNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "")
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		h := control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
		if _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.GetState(p.ctx, h, "acme", c.Component); err != nil {
			t.Errorf("while the job runs: %v", err)
		}
		p.died(h)
		if _, err := p.GetState(p.ctx, h, "acme", c.Component); fairlead.CodeOf(err) != "stale-epoch" {
			t.Errorf("after the step died: %v", err)
		}
	})
}

func TestRetryIsRefusedAfterInstallIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.stepFault = func(s events.JobSpec) stepFault {
			if s.Component == "web" {
				return fails
			}
			return none
		}
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "")
		p.work()
		if d := p.deployment(id); d.State != deployment.Failed {
			t.Fatalf("the deployment is %s: %s", d.State, nodes(d))
		}
		if err := p.ForgetInstall(p.ctx, org, "acme", true); err != nil {
			t.Fatal(err)
		}
		_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop",
			Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"x"`)}}, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.RetryDeployment(p.ctx, org, id, ""); fairlead.CodeOf(err) != "install-not-found" {
			t.Errorf("the retry returns %v", err)
		}
	})
}

func TestLogReaderLearnsThatServerStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		j, err := p.CheckRunner(p.ctx, me, "local", "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(p.ctx)
		time.AfterFunc(time.Second, cancel)
		if chunk, err := p.ReadLog(ctx, org, j.ID, 0, 0, 20*time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("it reads %+v, %v; want an error, because the log has not ended", chunk, err)
		}
	})
}

func TestChangeSetIsNeverReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{}, "")
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		h := control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
		if _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234"); err != nil {
			t.Fatal(err)
		}
		rep := control.Report{Outcome: control.OutcomeSucceeded, Plan: &control.Plan{Digest: "sha256:1"}, ChangeSet: []byte(`{"add":["a"]}`)}
		if err := p.FinishJob(p.ctx, h, rep); err != nil {
			t.Fatal(err)
		}
		rep.ChangeSet = []byte(`{"add":[]}`)
		if err := p.FinishJob(p.ctx, h, rep); err != nil {
			t.Errorf("a repeated report: %v", err)
		}
		j, err := p.Job(p.ctx, org, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.ChangeSet(p.ctx, j)
		if err != nil || string(got) != `{"add":["a"]}` {
			t.Errorf("the change set is %s, %v", got, err)
		}
	})
}

func TestOneSweepHandlesManyLostJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		const crowd = 450 // the sweep needs more than two pages to read this number of jobs
		for range crowd {
			if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
				t.Fatal(err)
			}
			c, err := p.Claim(p.ctx, p.session, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234"); err != nil {
				t.Fatal(err)
			}
		}
		p.sleep(job.LeaseTTL + time.Second)
		if s, err := p.Sweep(p.ctx); err != nil || s.Expired != crowd || s.Looked != crowd {
			t.Errorf("swept %+v, %v; want %d expired jobs, each read once", s, err, crowd)
		}
		p.sleep(time.Second)
		if s, err := p.Sweep(p.ctx); err != nil || s.Looked != 0 {
			t.Errorf("a second later: %+v, %v; want no job read, because all were just woken", s, err)
		}
	})
}

// A heartbeat can name a bounded number of jobs, and the length of each name is bounded.
// The reason is that the control plane stores all names and lists them with the runner.
func TestJobNamesInAHeartbeatAreBounded(t *testing.T) {
	p := newPlane(t, enginetest.Memory())
	for name, row := range map[string]struct {
		running []string
		code    fairlead.Code
	}{
		"two jobs":           {[]string{p.IDs(fairlead.PrefixJob), p.IDs(fairlead.PrefixJob)}, ""},
		"a name of 64 bytes": {[]string{strings.Repeat("x", 64)}, ""},
		"a name of 65 bytes": {[]string{p.IDs(fairlead.PrefixJob), strings.Repeat("x", 65)}, "invalid-heartbeat"},
		"1,000 jobs":         {slices.Repeat([]string{"job_1"}, 1000), ""},
		"1,001 jobs":         {slices.Repeat([]string{"job_1"}, 1001), "invalid-heartbeat"},
	} {
		expectCode(t, name, p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4, Running: row.running}), row.code)
	}
}
