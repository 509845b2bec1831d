package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// If a deployment is active, a request with NoQueue is refused and creates no record. The
// refusal has the id of the active deployment.
func TestNoQueueNamesTheActiveDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		now := control.NewDeployment{Kind: deployment.Deploy, AutoApprove: true, NoQueue: true}
		refused := func(first fairlead.DeploymentID, parts ...string) {
			t.Helper()
			_, err := p.CreateDeployment(p.ctx, org, "acme", now, "now")
			e, ok := err.(*fairlead.Error)
			if !ok || e.Code != "deployment-runs" || e.Kind != fairlead.KindConflict || e.Details["deployment"] != string(first) {
				t.Fatalf("the deployment is refused with %v", err)
			}
			for _, w := range parts {
				if !strings.Contains(e.Message+" "+commandline.Hint(e), w) {
					t.Errorf("%q is not in %q, %q", w, e.Message, e.Hint)
				}
			}
			all, _, err := p.Deployments(p.ctx, org, control.DeploymentFilter{Install: "acme"}, fairlead.PageQuery{Limit: 10})
			if err != nil || len(all) != 1 {
				t.Fatalf("there are %d deployments: %v", len(all), err)
			}
		}
		first := p.deploy("acme", control.NewDeployment{}, "first")
		refused(first, "is running")
		p.work()
		refused(first, "awaits approval since 2", "fairlead deployment approve "+string(first), "fairlead deployment cancel "+string(first))
		p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, first); return err })
		p.work()

		// The refused request did not use its idempotency key, so it can be repeated with the
		// same key.
		d, err := p.CreateDeployment(p.ctx, org, "acme", now, "now")
		if err != nil {
			t.Fatal(err)
		}
		again, err := p.CreateDeployment(p.ctx, org, "acme", now, "now")
		if err != nil || again.ID != d.ID {
			t.Fatalf("the repeated request made %s, not %s: %v", again.ID, d.ID, err)
		}
		p.work()
		p.expect(d.ID, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
	})
}
