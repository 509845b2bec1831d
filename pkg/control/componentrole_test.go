package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// Only the applies of a component have the role that it declares: its plans read, and its destroys delete.
func TestAppliesHaveTheRoleOfTheirComponent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(strings.Replace(onSandbox, "web: {type: script", "web: {role: provision, type: script", 1))
		p.install("acme")
		for _, c := range []struct {
			kind  deployment.Kind
			apply string // role of the second job
		}{{deployment.Deploy, "provision"}, {deployment.Teardown, ""}} {
			id := p.deploy("acme", control.NewDeployment{Kind: c.kind, Ask: deployment.AskNever}, "")
			p.work()
			d := p.deployment(id)
			for id, want := range map[fairlead.JobID]string{d.Node("web").PlanJob: "", d.Node("web").ApplyJob: c.apply} {
				if j, err := p.Job(p.ctx, org, id); err != nil || j.Role != want {
					t.Errorf("the %s of a %s has the role %q, want %q: %v", j.Operation, c.kind, j.Role, want, err)
				}
			}
		}
	})
}
