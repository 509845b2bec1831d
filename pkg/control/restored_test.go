package control_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// A job after the backup may have made a component that the backup knows as absent, or not at all. With a state that is as old as the
// backup, a plan of the component wants to create everything again. So each component's first plan after a restore waits for a person,
// also with auto-approval, until an apply or a plan without changes has succeeded.
func TestComponentMadeAfterTheBackupWaitsForApproval(t *testing.T) {
	const web, cache = "  web: {type: terraform, source: ./web, vars: {text: \"${inputs.password}\"}}\n", "  cache: {type: terraform, source: ./cache}\n"
	automatic := control.NewDeployment{AutoApprove: true}
	for _, tt := range []struct {
		name   string
		before func(p *plane) // before the backup
		after  string         // nodes of the first deployment after the restore
	}{
		{"its first apply is after the backup", func(*plane) {}, "web=awaiting-approval"},
		{"it was destroyed before the backup, and applied again after it", func(p *plane) {
			p.deployed()
			p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "teardown")
			p.work()
		}, "web=awaiting-approval"},
		{"a version after the backup has it", func(p *plane) {
			p.deployed()
			p.publish(appOf(web + cache))
		}, "cache=awaiting-approval web=unchanged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(appOf(web))
				p.install("acme")
				tt.before(p)
				p.restore()
				first := p.deployed()
				p.expect(first, deployment.Waiting, tt.after)
				for _, n := range p.deployment(first).Nodes {
					if n.State == deployment.Awaiting && !strings.Contains(n.Message, "the control plane was restored from a backup") {
						t.Errorf("the plan of %s waits because of %q", n.Component, n.Message)
					}
				}

				// An apply that fails, as one whose resources exist, does not end the doubt.
				p.stepFault = func(s events.JobSpec) stepFault {
					if s.Operation == "apply" {
						return fails
					}
					return none
				}
				p.approve(first)
				p.expect(first, deployment.Failed, strings.Replace(tt.after, "awaiting-approval", "failed", 1))
				p.stepFault = nil
				second := p.deployed()
				p.expect(second, deployment.Waiting, tt.after)
				p.approve(second)
				p.expect(second, deployment.Succeeded, strings.Replace(tt.after, "awaiting-approval", "applied", 1))

				// From here on, auto-approval covers the component as before the restore.
				p.must("change an input", func() error {
					_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"another-password"`)}})
					return err
				})
				if d := p.deployment(p.deployed()); d.State != deployment.Succeeded {
					t.Errorf("after the doubt has ended, a deployment with auto-approval is %s: %s", d.State, nodes(d))
				}

				// An install that is made after the restore has no past.
				p.install("young")
				id := p.deploy("young", automatic, "young")
				if p.work(); p.deployment(id).State != deployment.Succeeded {
					t.Errorf("an install made after the restore is %s: %s", p.deployment(id).State, nodes(p.deployment(id)))
				}
			})
		})
	}
}

// A plan-only deployment, which a person runs first after a restore, does not know the outputs of components that were never applied. It
// skips what needs them. No job of it is lost.
func TestPlanAfterARestoreSkipsWhatNeedsOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.restore()
		id := p.deploy("acme", control.NewDeployment{PlanOnly: true}, "plan")
		p.work()
		p.expect(id, deployment.Succeeded, "network=planned cache=skipped database=skipped web=skipped")
	})
}

// A retry does not repeat what its deployment has done. After a restore, jobs that the backup does not know may have changed that.
func TestRetryAfterARestorePlansWhatWasDone(t *testing.T) {
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
		id := p.deployed()
		p.expect(id, deployment.Failed, "network=applied cache=applied database=applied web=failed")
		p.stepFault = nil
		p.restore()
		delete(p.cloud, "cache") // a job after the backup has destroyed it
		var retry control.Deployment
		p.must("retry", func() (err error) { retry, err = p.RetryDeployment(p.ctx, org, id, "retry"); return })
		p.work()
		p.expect(retry.ID, deployment.Waiting, "network=unchanged cache=awaiting-approval database=unchanged web=pending")
	})
}

// restore makes the table safe to serve, as after its restore from a backup that is made now.
func (p *plane) restore() {
	p.t.Helper()
	p.must("restore", func() error { _, err := p.AfterRestore(p.ctx, ""); return err })
}

// approve approves all waiting plans of the deployment, and runs its jobs.
func (p *plane) approve(id fairlead.DeploymentID) {
	p.t.Helper()
	p.must("approve", func() error { _, err := p.ApproveDeployment(p.ctx, org, id, nil, nil); return err })
	p.work()
}
