package control_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// Two installs share a runner. The large install has 40 components and is deployed first. The
// jobs of the other install come first all the same, because it has fewer components.
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
		if longest > 0 {
			t.Errorf("before a job of acme %d jobs of the large install ran, want none: acme has fewer components", longest)
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

// Fifty installs of ten components each share one runner. If all of them went ahead at the same pace, all would end at the end. A small
// deployment that comes last does not wait for them.
func TestFiftyDeploymentsEndOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		app := func(name string, components int) {
			text := "fairlead: v1\nname: " + name + "\ncomponents:\n"
			for i := range components {
				text += fmt.Sprintf("  part%d: {type: terraform, source: ./c}\n", i)
			}
			p.publish(text)
		}
		deploy := func(install, app string) {
			p.must("create install", func() error {
				return errOf(p.CreateInstall(p.ctx, org, control.NewInstall{Name: install, App: app}, install))
			})
			p.deploy(install, control.NewDeployment{AutoApprove: true}, "deploy "+install)
			p.sleep(100 * time.Millisecond) // between two requests
		}
		app("many", 10)
		app("one", 1)
		for i := range 50 {
			deploy(fmt.Sprintf("large%02d", i), "many")
		}
		deploy("small", "one")
		jobs := 0
		ended := map[string]int{} // number of jobs up to the last one of the install
		p.stepFault = func(spec events.JobSpec) stepFault {
			jobs++
			ended[spec.InstallName] = jobs
			return none
		}
		p.work()
		small := ended["small"]
		delete(ended, "small")
		ends := slices.Sorted(maps.Values(ended))
		if jobs < 50*10 || len(ends) != 50 {
			t.Fatalf("%d jobs of %d installs ran", jobs, len(ends))
		}
		if median := ends[25]; 4*median > 3*jobs {
			t.Errorf("half of the deployments ended after %d of %d jobs, want at most 75 %%", median, jobs)
		}
		if small > jobs/10 {
			t.Errorf("the deployment of one component ended after %d of %d jobs", small, jobs)
		}
	})
}
