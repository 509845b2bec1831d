package control_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// situation returns the kinds and the text of a deployment's situations.
func (p *plane) situation(id fairlead.DeploymentID) (kinds []diagnosis.Kind, text string) {
	p.t.Helper()
	situations, err := p.DeploymentSituations(p.ctx, p.deployment(id))
	if err != nil {
		p.t.Fatal(err)
	}
	return situationText(situations)
}

func situationText(situations []diagnosis.Situation) (kinds []diagnosis.Kind, text string) {
	var lines []string
	for _, s := range situations {
		kinds = append(kinds, s.Kind)
		lines = append(append(lines, s.What), s.Known...)
		for _, n := range s.Next {
			lines = append(lines, commandline.Of(n.Action)+" "+n.Effect)
		}
	}
	return kinds, strings.Join(lines, "\n")
}

func (p *plane) expectSituation(what string, kinds []diagnosis.Kind, text string, want []diagnosis.Kind, parts ...string) {
	p.t.Helper()
	if !slices.Equal(kinds, want) {
		p.t.Errorf("%s: the situations are %q, want %q:\n%s", what, kinds, want, text)
	}
	for _, w := range parts {
		if !strings.Contains(text, w) {
			p.t.Errorf("%s: %q is missing in:\n%s", what, w, text)
		}
	}
}

// begin claims and starts the next job.
func (p *plane) begin() (control.Job, control.Holder) {
	p.t.Helper()
	c, err := p.Claim(p.ctx, p.session, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	h := control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
	if _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234"); err != nil {
		p.t.Fatal(err)
	}
	return c.Job, h
}

// applying deploys the install until the first apply runs. This is the apply of component
// network. It returns the deployment, the job of the apply and the holder of its lease.
func (p *plane) applying(install string) (fairlead.DeploymentID, control.Job, control.Holder) {
	p.t.Helper()
	id := p.deploy(install, control.NewDeployment{AutoApprove: true, Refresh: true}, "deploy-"+install)
	c, err := p.Claim(p.ctx, p.session, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	p.step(c)
	j, h := p.begin()
	if j.Operation != job.OpApply || j.Component != "network" {
		p.t.Fatalf("the running job is the %s of %s", j.Operation, j.Component)
	}
	return id, j, h
}

const stateOne = `{"version":4,"serial":7,"lineage":"aaaa","outputs":{},"resources":[]}`

// lockInfo returns the information about a lock that a tool sends.
func lockInfo(id string) []byte {
	return []byte(`{"ID":"` + id + `","Operation":"OperationTypeApply","Who":"fairlead@host-1","Created":"2026-11-20T00:00:00Z"}`)
}

func (p *plane) lockAndSave(h control.Holder, j control.Job, lock, state string) {
	p.t.Helper()
	p.must("lock", func() error { return p.LockState(p.ctx, h, string(j.Install), j.Component, lock, lockInfo(lock)) })
	p.must("save", func() error { return p.PutState(p.ctx, h, string(j.Install), j.Component, lock, []byte(state)) })
}

// An apply is lost. The test takes the actions that each situation advises, until the
// deployment ends.
func TestLostApplyIsDiagnosedUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		id, j, h := p.applying("acme")
		kinds, text := p.situation(id)
		p.expectSituation("before the loss", kinds, text, nil)
		p.lockAndSave(h, j, "lock-1", stateOne)
		p.sleep(2 * time.Second)
		p.died(h)

		kinds, text = p.situation(id)
		p.expectSituation("while the plan is queued", kinds, text, []diagnosis.Kind{diagnosis.Lost},
			"The apply "+string(j.ID)+" was lost", "step-killed", "on agent test of runner local", "last saved its state", "(serial 7)", "now checks what is missing", "deployment show "+string(id)+" --follow")
		in, err := p.Install(p.ctx, org, "acme")
		if err != nil {
			t.Fatal(err)
		}
		situations, err := p.InstallSituations(p.ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		_, text = situationText(situations)
		if !strings.Contains(text, "install unlock acme network --lock-id lock-1") || strings.Contains(text, "did not report its end") {
			t.Errorf("situations of the install:\n%s", text)
		}
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.step(c)
		kinds, text = p.situation(id)
		p.expectSituation("while it waits for approval", kinds, text, []diagnosis.Kind{diagnosis.Lost}, "`unknown` since", "1 to add",
			"fairlead job logs "+string(j.ID), "fairlead job show "+string(c.ID), "fairlead deployment approve "+string(id)+" network")
		p.must("approve", func() error { _, err := p.ApproveDeployment(p.ctx, org, id, []string{"network"}, nil); return err })
		p.work()
		p.expect(id, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
		kinds, text = p.situation(id)
		p.expectSituation("after the deployment", kinds, text, nil)
	})
}

func TestFailedReconcilingPlanAdvisesRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		id, j, h := p.applying("acme")
		p.died(h)
		p.stepFault = func(s events.JobSpec) stepFault { return diesBefore }
		p.work()
		p.expect(id, deployment.Failed, "network=lost cache=skipped database=skipped web=skipped")
		kinds, text := p.situation(id)
		p.expectSituation("after three dead plans", kinds, text, []diagnosis.Kind{diagnosis.Lost, diagnosis.Failed}, "The apply "+string(j.ID)+" was lost", "which would show what is missing, failed (poison)",
			"No state was ever saved", "fairlead deployment retry "+string(id))
		p.stepFault = nil
		again, err := p.RetryDeployment(p.ctx, org, id, "retry")
		if err != nil {
			t.Fatal(err)
		}
		p.work()
		// After the loss, the deployment waits for an approval although it has auto-approval.
		p.expect(again.ID, deployment.Waiting, "network=awaiting-approval cache=pending database=pending web=pending")
		kinds, text = p.situation(again.ID)
		p.expectSituation("the retry", kinds, text, []diagnosis.Kind{diagnosis.Lost}, "The apply "+string(j.ID)+" was lost", "job logs "+string(j.ID), "deployment approve "+string(again.ID)+" network")
		p.must("approve", func() error { _, err := p.ApproveDeployment(p.ctx, org, again.ID, nil, nil); return err })
		p.work()
		p.expect(again.ID, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
		kinds, text = p.situation(id)
		p.expectSituation("after the retry", kinds, text, []diagnosis.Kind{diagnosis.Lost, diagnosis.DeployedSince}, "deployment show "+string(again.ID), "fairlead install deploy acme")
		if strings.Contains(text, "deployment retry") {
			t.Errorf("the actions contain a retry, which would be refused:\n%s", text)
		}
	})
}

func TestPoisonJobShowsEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		id := p.deploy("acme", control.NewDeployment{}, "d")
		j, h := p.begin()
		p.died(h)
		kinds, text := p.situation(id)
		p.expectSituation("between two attempts", kinds, text, []diagnosis.Kind{diagnosis.Retrying}, "Attempt 1 of the plan "+string(j.ID), "step-killed", "The next attempt, 2 of 3, can start at")
		p.stepFault = func(events.JobSpec) stepFault { return diesBefore }
		p.work()
		kinds, text = p.situation(id)
		p.expectSituation("after the last attempt", kinds, text, []diagnosis.Kind{diagnosis.Poison, diagnosis.Failed}, "each of 3 attempts", "Attempt 1, at", "Attempt 2, at", "Attempt 3, at",
			"job logs "+string(j.ID), "deployment retry "+string(id))
		one, err := p.Job(p.ctx, org, j.ID)
		if err != nil {
			t.Fatal(err)
		}
		situations, err := p.JobSituations(p.ctx, one)
		if kinds, text = situationText(situations); err != nil || !slices.Equal(kinds, []diagnosis.Kind{diagnosis.Poison}) || !strings.Contains(text, "Attempt 3, at") {
			t.Errorf("situations of the job: %q, %v:\n%s", kinds, err, text)
		}
	})
}

func TestUnclaimedJobsAreDiagnosedWithRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.install("other")
		beat := func(h control.Heartbeat) {
			p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, h) })
		}
		id := p.deploy("acme", control.NewDeployment{}, "d")
		p.deploy("other", control.NewDeployment{}, "e")
		beat(control.Heartbeat{Capacity: 1})
		kinds, text := p.situation(id)
		p.expectSituation("with a free slot", kinds, text, nil)
		beat(control.Heartbeat{Capacity: 1, Running: []string{"job_x"}})
		kinds, text = p.situation(id)
		p.expectSituation("without a free slot", kinds, text, []diagnosis.Kind{diagnosis.RunnerFull}, "(1 of 1); 2 jobs wait")
		beat(control.Heartbeat{Capacity: 1, Draining: true})
		kinds, text = p.situation(id)
		p.expectSituation("while the agent drains", kinds, text, []diagnosis.Kind{diagnosis.RunnerDrains}, "drains (test)", "runner enrol local")
		seen := p.Now()
		p.sleep(time.Hour)
		kinds, text = p.situation(id)
		p.expectSituation("without an agent", kinds, text, []diagnosis.Kind{diagnosis.RunnerSilent}, "No agent of runner local was seen since "+seen.UTC().Format("2006-01-02 15:04:05"),
			"2 jobs wait", "The last one was test", "fails with queue-timeout", "fairlead runner show local")
		r, err := p.Runner(p.ctx, org, "local")
		if err != nil {
			t.Fatal(err)
		}
		situations, err := p.RunnerSituations(p.ctx, r)
		if kinds, text = situationText(situations); err != nil || !slices.Equal(kinds, []diagnosis.Kind{diagnosis.RunnerSilent}) || !strings.Contains(text, "2 jobs wait") {
			t.Errorf("situations of the runner: %q, %v:\n%s", kinds, err, text)
		}
		p.enrol()
		p.work()
		kinds, text = p.situation(id)
		p.expectSituation("with a new agent", kinds, text, []diagnosis.Kind{diagnosis.Approval}, "network: 1 to add", "deployment approve "+string(id))
		p.must("make a runner", func() error { return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "empty"}) })
		if r, err = p.Runner(p.ctx, org, "empty"); err != nil {
			t.Fatal(err)
		}
		if situations, err = p.RunnerSituations(p.ctx, r); err != nil {
			t.Fatal(err)
		}
		kinds, text = situationText(situations)
		p.expectSituation("a new runner", kinds, text, []diagnosis.Kind{diagnosis.RunnerSilent}, "was ever online", "runner enrol empty")
	})
}

func TestQueuedDeploymentNamesItsPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		first := p.deploy("acme", control.NewDeployment{}, "1")
		p.deploy("acme", control.NewDeployment{}, "2")
		third := p.deploy("acme", control.NewDeployment{}, "3")
		p.work()
		kinds, text := p.situation(third)
		p.expectSituation("the third", kinds, text, []diagnosis.Kind{diagnosis.Queued}, string(first)+" of install acme, which awaits approval since 2", "1 more comes before", "deployment approve "+string(first))
	})
}

func TestStartingJobIsShownWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		id := p.deploy("acme", control.NewDeployment{}, "1")
		since := p.Now().UTC()
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.sleep(5 * time.Second)
		kinds, text := p.situation(id)
		p.expectSituation("a claimed job", kinds, text, []diagnosis.Kind{diagnosis.Starting}, string(c.ID), since.Format("15:04:05"), since.Add(job.StartTimeout).Format("15:04:05"), "runner show local")
		if _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234"); err != nil {
			t.Fatal(err)
		}
		kinds, text = p.situation(id)
		p.expectSituation("a started job", kinds, text, nil)
	})
}

func TestStoppingJobNamesItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		id, j, h := p.applying("acme")
		p.sleep(30 * time.Second)
		kinds, text := p.situation(id)
		p.expectSituation("a silent step", kinds, text, []diagnosis.Kind{diagnosis.StepSilent}, string(j.ID), "the job is lost")
		p.must("renew", func() error { _, err := p.RenewLease(p.ctx, h, 0, 0); return err })
		p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, id); return err })
		asked := p.Now().UTC()
		kinds, text = p.situation(id)
		p.expectSituation("a canceled step", kinds, text, []diagnosis.Kind{diagnosis.Stopping}, asked.Add(job.Grace).Format("15:04:05"), asked.Add(2*job.Grace).Format("15:04:05"))
		p.sleep(time.Hour)
		p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
		kinds, text = p.situation(id)
		p.expectSituation("after its lease expired", kinds, text, []diagnosis.Kind{diagnosis.Lost, diagnosis.Stopped}, "lease-expired", "deployment retry")
		p.must("forget", func() error { return p.ForgetInstall(p.ctx, org, "acme", true) })
		kinds, text = p.situation(id)
		p.expectSituation("after the install was forgotten", kinds, text, []diagnosis.Kind{diagnosis.Lost, diagnosis.Stopped})
		if strings.Contains(text, "retry") {
			t.Errorf("the actions contain a retry, which would be refused:\n%s", text)
		}
	})
}

// After a runner is deleted, its jobs and deployments can still be shown and canceled. This
// is also true if a new runner has the same name.
func TestJobsOfADeletedRunnerAreDiagnosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		for _, name := range []string{"spare", "next"} {
			p.must("make a runner", func() error {
				return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: name, Storage: "http"})
			})
		}
		p.must("make an install", func() error {
			return errOf(p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "spare", Inputs: secretPassword()}, ""))
		})
		local := p.session
		p.enrolAt("spare")
		p.stepFault = func(spec events.JobSpec) stepFault {
			if spec.Operation == "plan" {
				return none
			}
			return diesBefore
		}
		lost := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "lost")
		p.work()
		p.must("cancel", func() error { return errOf(p.CancelDeployment(p.ctx, org, lost)) })
		// These two jobs have no install, so they do not prevent the deletion of the runner.
		waits, err := p.CheckRunner(p.ctx, me, "spare", "waits")
		if err != nil {
			t.Fatal(err)
		}
		died, err := p.CheckRunner(p.ctx, me, "spare", "died")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			c, err := p.Claim(p.ctx, p.session, 0)
			if err != nil {
				t.Fatal(err)
			}
			if c.ID == died.ID {
				p.must("start", func() error { return errOf(p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234")) })
				p.died(control.Holder{Job: c.ID, Epoch: c.Lease.Epoch})
			} else {
				p.must("release", func() error { return p.ReleaseJob(p.ctx, p.session, c.ID, c.Lease.Epoch) })
			}
		}
		next := "next"
		p.must("name another runner", func() error {
			return errOf(p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Runner: &next}))
		})
		p.must("move the install", func() error { return errOf(p.RefreshRunner(p.ctx, org, "acme", control.Refresh{})) })
		p.must("delete the runner", func() error { return p.DeleteRunner(p.ctx, control.User{Org: org}, "spare") })
		p.session = local

		look := func(when string) {
			t.Helper()
			for _, id := range []fairlead.JobID{waits.ID, died.ID} {
				j, err := p.Job(p.ctx, org, id)
				if err != nil {
					t.Fatal(err)
				}
				situations, err := p.JobSituations(p.ctx, j)
				if err != nil {
					t.Fatalf("%s: a job that is %s: %v", when, j.State, err)
				}
				kinds, text := situationText(situations)
				want := []diagnosis.Kind{diagnosis.RunnerGone}
				if id == died.ID {
					want = []diagnosis.Kind{diagnosis.Retrying, diagnosis.RunnerGone}
				}
				p.expectSituation(when, kinds, text, want, "Runner spare was deleted", "fail with queue-timeout", "job cancel "+string(id))
				if strings.Contains(text, "runner show") || strings.Contains(text, "runner check") {
					t.Errorf("the actions name the deleted runner:\n%s", text)
				}
			}
			kinds, text := p.situation(lost)
			p.expectSituation(when, kinds, text, []diagnosis.Kind{diagnosis.Lost, diagnosis.Stopped}, "No state was ever saved", "deployment retry")
		}
		look("after the deletion")
		p.must("create another runner with its name", func() error {
			return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "spare", Storage: "local"})
		})
		look("with another runner of the name")
		for _, id := range []fairlead.JobID{waits.ID, died.ID} {
			j, err := p.CancelJob(p.ctx, org, id)
			if err == nil {
				_, err = p.JobSituations(p.ctx, j)
			}
			if err != nil || j.State != job.Canceled {
				t.Errorf("the canceled job is %s, %v", j.State, err)
			}
		}
	})
}
