package control_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// A plan that no person reads expires: its approval is refused, the sweep ends its deployment, and the deployment behind
// it begins. A retry plans again.
func expiryStory(p *plane) {
	p.t.Helper()
	p.publish(shop)
	p.install("acme")
	first := p.deploy("acme", control.NewDeployment{PlansExpire: time.Hour}, "first")
	p.work()
	next := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "next")
	p.expect(first, deployment.Waiting, "network=awaiting-approval cache=pending database=pending web=pending")

	p.sleep(time.Hour)
	if _, err := p.ApproveDeployment(p.ctx, org, first, nil, nil); fairlead.CodeOf(err) != fairlead.CodePlanExpired {
		p.t.Fatalf("the approval of an expired plan returned %v", err)
	}
	p.expect(first, deployment.Waiting, "network=awaiting-approval cache=pending database=pending web=pending")
	p.must("sweep", func() error {
		swept, err := p.Sweep(p.ctx)
		if err == nil && swept.Plans != 1 {
			p.t.Errorf("the sweep ended the plans of %d deployments", swept.Plans)
		}
		return err
	})
	p.expect(first, deployment.Failed, "network=canceled cache=skipped database=skipped web=skipped")
	if len(p.applied) != 0 {
		p.t.Errorf("tools ran for %v", p.applied)
	}
	p.work()
	p.expect(next, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")

	late := p.deploy("acme", control.NewDeployment{PlansExpire: time.Hour, Refresh: true}, "late")
	p.cloud = map[string]string{} // the plans find changes
	p.work()
	p.sleep(time.Hour)
	p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
	found, text := p.situation(late)
	p.expectSituation("an expired plan", found, text, []diagnosis.Kind{diagnosis.Stopped, diagnosis.Failed},
		"The plan of network expired: no person approved its plan within 1 hour.", "Nothing was changed.", "fairlead deployment retry "+string(late)+" plans it again")
	var again control.Deployment
	p.must("retry", func() (err error) { again, err = p.RetryDeployment(p.ctx, org, late, "again"); return })
	if again.PlansExpire != time.Hour {
		p.t.Errorf("the plans of the retry expire after %s", again.PlansExpire)
	}
	p.work()
	p.must("approve in time", func() error { _, err := p.ApproveDeployment(p.ctx, org, again.ID, nil, nil); return err })

	// No agent claims the apply before its plan expires.
	j := p.job(p.deployment(again.ID).Nodes[0].ApplyJob)
	p.sleep(time.Hour)
	if _, err := p.Claim(p.ctx, p.session, 0); err == nil {
		p.t.Error("an agent claimed the apply of an expired plan")
	}
	p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
	if j = p.job(j.ID); j.State != job.Failed || j.Reason != fairlead.ReasonPlanExpired {
		p.t.Errorf("the apply is %s for %q: %s", j.State, j.Reason, j.Message)
	}
	p.expect(again.ID, deployment.Failed, "network=failed cache=skipped database=skipped web=skipped")
}

func TestExpiredPlansEndOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	expiryStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestExpiredPlansEndOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	expiryStory(newPlaneAt(t, dynamoTable(t, "expiry"), c.now, c.sleep))
}
