package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// TestInstallIsDeployedUpdatedAndTornDown runs the main story. Other tests run it with
// faults or on other engines.
func TestInstallIsDeployedUpdatedAndTornDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { mainStory(t, newPlane(t, enginetest.Memory())) })
}

func mainStory(t *testing.T, p *plane) {
	p.publish(shop)
	p.install("acme")

	// Plans wait for approval, in the order of the graph.
	d1 := p.deploy("acme", control.NewDeployment{}, "d1")
	p.work()
	if got := nodes(p.deployment(d1)); got != "network=awaiting-approval cache=pending database=pending web=pending" {
		t.Fatalf("before approval: %s", got)
	}
	if len(p.applied) != 0 {
		t.Fatalf("applied without approval: %v", p.applied)
	}
	for range 3 { // the graph has three levels, and each level needs an approval
		p.must("approve", func() error {
			_, err := p.ApproveDeployment(p.ctx, org, d1, nil, nil)
			if fairlead.CodeOf(err) == "not-awaiting-approval" {
				return nil // an earlier request succeeded
			}
			return err
		})
		p.work()
	}
	p.expect(d1, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
	if got := strings.Join(p.applied, ", "); got != "apply network, apply cache, apply database, apply web" &&
		got != "apply network, apply database, apply cache, apply web" {
		t.Errorf("applied in the order %s", got)
	}

	// A deployment without changes applies nothing.
	p.applied = nil
	d2 := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d2")
	p.work()
	p.expect(d2, deployment.Succeeded, "network=unchanged cache=unchanged database=unchanged web=unchanged")
	if len(p.applied) != 0 {
		t.Errorf("a deployment without changes applied %v", p.applied)
	}

	// An input changes one component.
	p.must("update", func() error {
		_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
		return err
	})
	p.wantUndeployed("acme", "after a change of an input", "network variable size")
	d3 := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d3")
	p.work()
	p.expect(d3, deployment.Succeeded, "network=applied cache=unchanged database=unchanged web=unchanged")
	p.wantUndeployed("acme", "after its deployment", "")

	// A teardown destroys the components in the reverse order.
	p.applied = nil
	d4 := p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "d4")
	p.work()
	p.expect(d4, deployment.Succeeded, "web=applied cache=applied database=applied network=applied")
	if got := p.applied; len(got) != 4 || got[0] != "destroy web" || got[3] != "destroy network" {
		t.Errorf("torn down in the order %v", got)
	}
	if len(p.cloud) != 0 {
		t.Errorf("left in the cloud: %v", p.cloud)
	}
	p.must("forget", func() error {
		err := p.ForgetInstall(p.ctx, org, "acme", false)
		if fairlead.CodeOf(err) == "install-not-found" {
			return nil // an earlier request succeeded
		}
		return err
	})
	if _, err := p.Install(p.ctx, org, "acme"); fairlead.KindOf(err) != fairlead.KindNotFound && fairlead.KindOf(err) != fairlead.KindUnavailable {
		t.Errorf("after forget: %v", err)
	}
}

func (p *plane) expect(id fairlead.DeploymentID, state deployment.State, want string) {
	p.t.Helper()
	d := p.deployment(id)
	if d.State != state || nodes(d) != want {
		for _, n := range d.Nodes {
			p.t.Logf("%s: %s %s", n.Component, n.Reason, n.Message)
		}
		p.t.Fatalf("deployment is %s: %s\nwant %s: %s", d.State, nodes(d), state, want)
	}
}

// The main story has the same result if one commit, get or query has a fault. The test
// tries each kind of fault at each of these calls.
func TestMainStoryUnderEveryFault(t *testing.T) {
	every := everyFault{next: stride, least: 5,
		faults: []enginetest.Fault{enginetest.NotStored, enginetest.Stored, enginetest.Conflict, enginetest.Stale}}
	every.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
		*armed = true
		mainStory(t, newPlane(t, e))
	})
}

// stride returns the distance from place n to the next tested place. All commits are in the
// first 120 places, so each of these places is tested. The later places are reads, so every
// fifth of them is tested.
func stride(n int) int {
	if n < 120 {
		return 1
	}
	return 5
}

// The main story succeeds if a tenth of all engine calls fail. A seed selects these calls.
func TestMainStoryUnderManyFaults(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mainStory(t, newPlane(t, enginetest.Faulty(enginetest.Memory(), enginetest.Seeded(seed, 0.1))))
			})
		})
	}
}

// The result of a step's death depends on the operation of its job and on the time of the
// death.
func TestInterruptedStep(t *testing.T) {
	type row struct {
		name      string
		operation string
		what      stepFault
		times     int
		auto      bool
		state     deployment.State
		database  deployment.NodeState
		applies   int // the number of applies of component database
	}
	for _, tt := range []row{
		{"a plan that dies runs again", "plan", diesBefore, 1, true, deployment.Succeeded, deployment.Applied, 1},
		{"a plan whose host vanishes runs again", "plan", vanishes, 1, true, deployment.Succeeded, deployment.Applied, 1},
		{"a plan that always kills its step is poison", "plan", diesBefore, 9, true, deployment.Failed, deployment.NodeFailed, 0},
		{"an apply that died after its work is not repeated", "apply", diesAfter, 1, true, deployment.Succeeded, deployment.Applied, 1},
		{"an apply whose host vanished after its work is not repeated", "apply", vanishes, 1, true, deployment.Succeeded, deployment.Applied, 1},
		{"an apply that died before its work waits for approval", "apply", diesBefore, 1, true, deployment.Waiting, deployment.Awaiting, 0},
		{"a failed apply fails its deployment", "apply", fails, 1, true, deployment.Failed, deployment.NodeFailed, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(shop)
				p.install("acme")
				left := tt.times
				p.stepFault = func(s events.JobSpec) stepFault {
					if s.Component == "database" && s.Operation == tt.operation && left > 0 {
						left--
						return tt.what
					}
					return none
				}
				id := p.deploy("acme", control.NewDeployment{AutoApprove: tt.auto}, "d")
				p.work()
				d := p.deployment(id)
				if d.State != tt.state || d.Node("database").State != tt.database {
					t.Fatalf("deployment is %s: %s", d.State, nodes(d))
				}
				if got := strings.Count(strings.Join(p.applied, ","), "apply database"); got != tt.applies {
					t.Errorf("the database was applied %d times: %v", got, p.applied)
				}
				if d.State == deployment.Waiting {
					p.stepFault = nil
					defer func() {
						// The deployment still lists the job of the lost apply.
						jobs, err := p.DeploymentJobs(p.ctx, org, id)
						lost := slices.ContainsFunc(jobs, func(j control.Job) bool { return j.State == job.Lost })
						if err != nil || len(jobs) != 10 || !lost {
							t.Errorf("the deployment lists %d jobs, and the lost one: %v, %v", len(jobs), lost, err)
						}
					}()
					p.must("approve", func() error { _, err := p.ApproveDeployment(p.ctx, org, id, nil, nil); return err })
					p.work()
					p.expect(id, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
				}
			})
		})
	}
}

// A retry of a failed deployment does not apply the components again that were applied
// before the failure.
func TestRetryContinuesAfterTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.stepFault = func(s events.JobSpec) stepFault {
			if s.Component == "database" && s.Operation == "apply" {
				return fails
			}
			return none
		}
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		p.work()
		p.expect(id, deployment.Failed, "network=applied cache=applied database=failed web=skipped")
		p.stepFault, p.applied = nil, nil
		again, err := p.RetryDeployment(p.ctx, org, id, "retry")
		if err != nil {
			t.Fatal(err)
		}
		p.work()
		p.expect(again.ID, deployment.Succeeded, "network=unchanged cache=unchanged database=applied web=applied")
		if got := strings.Join(p.applied, ", "); got != "apply database, apply web" {
			t.Errorf("the retry applied %s", got)
		}
		if _, err := p.RetryDeployment(p.ctx, org, id, "retry-2"); fairlead.CodeOf(err) != "deployed-since" {
			t.Errorf("a second retry of an old deployment: %v", err)
		}
	})
}

// A component is unknown as long as some of its resources may be missing in its state.
func TestFailedApplySetsComponentCondition(t *testing.T) {
	for _, tt := range []struct {
		name string
		what stepFault
		want store.ComponentState
	}{
		{"the tool failed", fails, store.Failed},
		{"the tool could not save its state", unsaved, store.Unknown},
		{"the tool was killed", killed, store.Unknown},
		{"the apply was lost", vanishes, store.Unknown},
		{"the apply succeeded", none, store.Present},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(appOf("  web: {type: terraform, source: ./web}\n"))
				p.install("acme")
				planned := 0
				p.stepFault = func(s events.JobSpec) stepFault {
					if s.Operation == "apply" {
						return tt.what
					}
					if planned++; planned > 1 {
						return fails // without a successful plan, the component stays unknown after the lost apply
					}
					return none
				}
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
				p.work()
				if got := p.component("acme", "web").V.State; got != tt.want {
					t.Errorf("the component is %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// A later deployment that changed nothing does not prevent a retry.
func TestRetryWorksAfterUnchangedDeployments(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(p *plane)
	}{
		{"a plan-only deployment", func(p *plane) {
			p.deploy("acme", control.NewDeployment{PlanOnly: true}, "look")
			p.work()
		}},
		{"a deployment canceled in the queue", func(p *plane) {
			first := p.deploy("acme", control.NewDeployment{PlanOnly: true}, "first")
			queued := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "queued")
			p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, queued); return err })
			p.work()
			_ = first
		}},
		{"a deployment whose plans were not approved", func(p *plane) {
			id := p.deploy("acme", control.NewDeployment{}, "unapproved")
			p.work()
			p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, id); return err })
			p.work()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(shop)
				p.install("acme")
				p.stepFault = func(s events.JobSpec) stepFault {
					if s.Component == "database" && s.Operation == "apply" {
						return fails
					}
					return none
				}
				id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
				p.work()
				p.expect(id, deployment.Failed, "network=applied cache=applied database=failed web=skipped")
				tt.then(p)
				if kinds, text := p.situation(id); slices.Contains(kinds, diagnosis.DeployedSince) || !strings.Contains(text, "fairlead deployment retry "+string(id)) {
					t.Errorf("the situations are %v:\n%s", kinds, text)
				}
				p.stepFault = nil
				again, err := p.RetryDeployment(p.ctx, org, id, "retry")
				if err != nil {
					t.Fatal(err)
				}
				p.work()
				p.expect(again.ID, deployment.Succeeded, "network=unchanged cache=unchanged database=applied web=applied")
			})
		})
	}
}

// An install runs one deployment at a time. Other deployments wait in a queue. When the
// running deployment ends, the next deployment starts by itself.
func TestOneDeploymentAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		first := p.deploy("acme", control.NewDeployment{}, "1")
		second := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "2")
		third := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "3")
		p.work()
		if got := p.deployment(second).State; got != deployment.Queued {
			t.Fatalf("the second deployment is %s while the first waits", got)
		}
		if _, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{}); fairlead.CodeOf(err) != "deployment-runs" {
			t.Errorf("an update during a deployment: %v", err)
		}
		if _, err := p.CancelDeployment(p.ctx, org, second); err != nil {
			t.Fatal(err)
		}
		if _, err := p.CancelDeployment(p.ctx, org, first); err != nil {
			t.Fatal(err)
		}
		p.work()
		p.expect(first, deployment.Canceled, "network=canceled cache=canceled database=canceled web=canceled")
		p.expect(second, deployment.Canceled, "network=canceled cache=canceled database=canceled web=canceled")
		p.expect(third, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
	})
}

// If a step is suspended and its lease expires, all later requests of the step are refused.
// The step cannot finish its job, write a log, renew, store a plan or lock a state.
func TestStaleStepIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "paused-step"); err != nil {
			t.Fatal(err)
		}
		p.work() // the lease expires, the next attempt of the job runs, and the deployment continues
		p.expect(id, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
		h := control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
		for name, fn := range map[string]func() error{
			"finish": func() error { return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed}) },
			"log":    func() error { _, err := p.AppendLog(p.ctx, h, 0, []byte("late")); return err },
			"renew":  func() error { _, err := p.RenewLease(p.ctx, h, 0, 0); return err },
			"start":  func() error { _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "other-step"); return err },
			"plan":   func() error { return p.PutPlan(p.ctx, h, []byte("plan")) },
			"lock":   func() error { return p.LockState(p.ctx, h, "acme", "network", "l", nil) },
		} {
			if err := fn(); fairlead.KindOf(err) != fairlead.KindStale {
				t.Errorf("%s with a stale epoch: %v", name, err)
			}
		}
	})
}

// Steps cannot renew their leases while the control plane is down. So after an outage, the
// control plane waits for renewals before it expires a lease.
func TestLeasesSurviveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "steady-step"); err != nil {
			t.Fatal(err)
		}
		p.sleep(10 * time.Minute) // the control plane is down
		p.HoldLeases()            // the control plane is up again
		state := func() job.State {
			if _, err := p.Sweep(p.ctx); err != nil {
				t.Fatal(err)
			}
			j, err := p.Job(p.ctx, org, c.ID)
			if err != nil {
				t.Fatal(err)
			}
			return j.State
		}
		if got := state(); got != job.Running {
			t.Fatalf("right after the outage the job is %s", got)
		}
		if _, err := p.RenewLease(p.ctx, control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}, 0, 0); err != nil {
			t.Errorf("the step cannot renew after the outage: %v", err)
		}
		p.sleep(job.LeaseTTL + time.Second)
		if got := state(); got != job.Queued {
			t.Errorf("after the step stopped renewing the job is %s", got)
		}
	})
}

// No sensitive value is in clear text in the table.
func TestSecretsAreSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &recorder{MemoryEngine: enginetest.Memory()}
		p := newPlane(t, e)
		mainStory(t, p)
		for _, secret := range []string{"hunter2-hunter2", "secret-of-"} {
			for _, body := range e.bodies {
				if strings.Contains(body, secret) {
					t.Errorf("%q is in the table: %.200s", secret, body)
				}
			}
		}
	})
}

// recorder records the bodies of all commits.
type recorder struct {
	*enginetest.MemoryEngine
	bodies []string
}

func (r *recorder) Commit(ctx context.Context, token string, ws ...engine.Write) error {
	for _, w := range ws {
		r.bodies = append(r.bodies, string(w.Item.Body))
	}
	return r.MemoryEngine.Commit(ctx, token, ws...)
}

// A request that is repeated with its idempotency key creates no second deployment. A
// different request with the same key is refused.
func TestIdempotencyKeyCreatesOneDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		a := p.deploy("acme", control.NewDeployment{}, "same")
		if b := p.deploy("acme", control.NewDeployment{}, "same"); a != b {
			t.Errorf("the same key created %s and %s", a, b)
		}
		_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Teardown}, "same")
		if fairlead.CodeOf(err) != "idempotency-key-reused" {
			t.Errorf("another request with the same key: %v", err)
		}
		if c := p.deploy("acme", control.NewDeployment{}, "other"); c == a {
			t.Error("another key created no deployment")
		}
	})
}
