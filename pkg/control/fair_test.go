package control_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// Two installs share a runner. The large install has 40 components and is deployed first.
// Only a few of its jobs are queued at the same time. So the jobs of the other install need
// not wait for all jobs of the large install.
func TestLargeDeploymentDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		var app strings.Builder
		app.WriteString("fairlead: v1\nname: many\ncomponents:\n")
		for i := range 40 {
			fmt.Fprintf(&app, "  part%d: {type: terraform, source: ./c}\n", i)
		}
		p.publish(app.String())
		p.must("create install", func() error {
			return errOf(p.CreateInstall(p.ctx, org, control.NewInstall{Name: "large", App: "many"}, "large"))
		})
		p.publish(shop)
		p.install("acme")
		large := p.deploy("large", control.NewDeployment{AutoApprove: true}, "deploy large")
		small := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "deploy small")
		between, longest, done := 0, 0, 0
		p.stepFault = func(spec events.JobSpec) stepFault {
			if strings.HasPrefix(spec.Component, "part") {
				between++
				done++
				return none
			}
			longest = max(longest, between)
			between = 0
			return none
		}
		p.work()
		if longest == 0 || longest > deployment.Parallelism {
			t.Errorf("between two jobs of acme %d jobs of the large install ran, want at most %d", longest, deployment.Parallelism)
		}
		if done != 2*40 {
			t.Errorf("the large install had %d jobs, want a plan and an apply of each component", done)
		}
		p.expect(small, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
		if d := p.deployment(large); d.State != deployment.Succeeded {
			t.Errorf("the large deployment is %s", d.State)
		}
	})
}
