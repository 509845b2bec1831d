package control_test

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// A person repairs one component of a large app without touching the others.
func TestTargetsAreDeployedWithWhatTheyNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, Targets: []string{"cache", "queue"}}, "")
		expectCode(t, "an unknown target", err, "component-not-found")

		id := p.deploy("acme", control.NewDeployment{AutoApprove: true, Targets: []string{"cache"}}, "first")
		p.work()
		p.expect(id, deployment.Succeeded, "network=applied cache=applied")
		if k := p.component("acme", "web"); k.Version != 0 {
			t.Errorf("a component that was not asked for is %s", k.V.State)
		}

		// A retry has the targets of the deployment that failed.
		p.stepFault = func(s events.JobSpec) stepFault {
			if s.Component == "database" && s.Operation == "apply" {
				return fails
			}
			return none
		}
		id = p.deploy("acme", control.NewDeployment{AutoApprove: true, Targets: []string{"database"}}, "second")
		p.work()
		p.expect(id, deployment.Failed, "network=unchanged database=failed")
		p.stepFault = nil
		again, err := p.RetryDeployment(p.ctx, org, id, "again")
		if err != nil {
			t.Fatal(err)
		}
		p.work()
		p.expect(again.ID, deployment.Succeeded, "network=unchanged database=applied")

		// A teardown also destroys what needs the target, and nothing else.
		p.applied = nil
		id = p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true, Targets: []string{"cache"}}, "gone")
		p.work()
		p.expect(id, deployment.Succeeded, "cache=applied")
		if k := p.component("acme", "network"); k.V.State != store.Present {
			t.Errorf("the network is %s", k.V.State)
		}
		id = p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true, Targets: []string{"network"}}, "rest")
		p.work()
		p.expect(id, deployment.Succeeded, "database=applied network=applied")
	})
}

// A deployment in the queue has the graph of the moment at which it begins, with its targets.
func TestQueuedDeploymentKeepsItsTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true, Targets: []string{"network"}}, "first")
		queued := p.deploy("acme", control.NewDeployment{AutoApprove: true, Targets: []string{"cache"}}, "second")
		p.work()
		p.expect(queued, deployment.Succeeded, "network=unchanged cache=applied")
	})
}
