package control_test

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// After a lost apply, the next deployment waits for an approval, even if it has
// auto-approval or was queued before the loss. The reason is that the state may not contain
// the resources that the lost tool created. So the new plan may create these resources a
// second time.
func TestLostApplyNeedsApprovalInNextDeployment(t *testing.T) {
	for _, tt := range []struct {
		name string
		next func(p *plane, lost fairlead.DeploymentID) fairlead.DeploymentID
	}{
		{"a later deployment", func(p *plane, lost fairlead.DeploymentID) fairlead.DeploymentID {
			p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, lost); return err })
			return p.deploy("acme", control.NewDeployment{AutoApprove: true}, "next")
		}},
		{"a deployment in the queue", func(p *plane, lost fairlead.DeploymentID) fairlead.DeploymentID {
			next := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "next")
			p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, lost); return err })
			return next
		}},
		{"a retry", func(p *plane, lost fairlead.DeploymentID) fairlead.DeploymentID {
			p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, lost); return err })
			var d control.Deployment
			p.must("retry", func() (err error) { d, err = p.RetryDeployment(p.ctx, org, lost, "next"); return err })
			return d.ID
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(shop)
				p.install("acme")
				p.stepFault = func(s events.JobSpec) stepFault {
					if s.Component == "network" && s.Operation == "apply" {
						return diesBefore
					}
					return none
				}
				lost := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "lost")
				p.work()
				p.stepFault = nil
				next := tt.next(p, lost)
				p.work()
				if d := p.deployment(next); d.State != deployment.Waiting || d.Node("network").State != deployment.Awaiting || d.Node("network").LostJob == "" {
					t.Fatalf("the next deployment is %s: %s", d.State, nodes(d))
				}
				if len(p.applied) != 0 {
					t.Fatalf("applied without an approval: %v", p.applied)
				}
				p.must("approve", func() error { _, err := p.ApproveDeployment(p.ctx, org, next, nil, nil); return err })
				p.work()
				p.expect(next, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")

				// The component was applied again after the loss, so auto-approval has effect
				// for it again.
				p.cloud["network"] = "drifted"
				after := p.deploy("acme", control.NewDeployment{AutoApprove: true, Refresh: true}, "after")
				p.work()
				p.expect(after, deployment.Succeeded, "network=applied cache=unchanged database=unchanged web=unchanged")
			})
		})
	}
}
