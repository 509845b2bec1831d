package control_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// effective returns the values that a deployment of the install would use now.
func (p *plane) effective(install string) control.Effective {
	p.t.Helper()
	var e control.Effective
	p.must("resolve the effective values", func() (err error) { e, err = p.Effective(p.ctx, org, install); return })
	return e
}

// wantUndeployed compares the undeployed differences of the install with want. In want each
// difference is "component kind name", and semicolons separate the differences.
func (p *plane) wantUndeployed(install, when, want string) {
	p.t.Helper()
	var all []string
	for _, u := range p.effective(install).Undeployed {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", u.Component, u.What, u.Name)))
	}
	if got := strings.Join(all, "; "); got != want {
		p.t.Errorf("%s: the undeployed differences are %q, want %q", when, got, want)
	}
}

// After a change, the difference is listed as undeployed until a deployment succeeds. The
// test makes each kind of change.
func TestChangesAreUndeployedUntilDeployed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.wantUndeployed("acme", "a new install", "")
		deploy := func(in control.NewDeployment) {
			t.Helper()
			in.AutoApprove = !in.PlanOnly
			id := p.deploy("acme", in, "")
			p.work()
			if d := p.deployment(id); d.State != deployment.Succeeded {
				t.Fatalf("the deployment is %s: %s", d.State, nodes(d))
			}
		}
		input := func(name, value string) {
			p.must("update", func() error {
				_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{name: json.RawMessage(value)}})
				return err
			})
		}
		variable := func(of control.VariableScope, v *control.Variable) {
			p.must("set a variable", func() error {
				_, err := p.SetVariables(p.ctx, control.User{Org: org}, of, map[string]*control.Variable{"REGION": v})
				return err
			})
		}
		deploy(control.NewDeployment{})
		p.wantUndeployed("acme", "after a deployment", "")

		for _, c := range []struct {
			change string
			do     func()
			want   string
		}{
			{"an input", func() { input("size", "5") }, "network variable size"},
			{"a sensitive input", func() { input("password", `"another-secret"`) }, "database variable password"},
			{"a sensitive variable of the app", func() { variable(control.VariableScope{App: "shop"}, &control.Variable{Value: "eu", Sensitive: true}) },
				"cache environment; database environment; network environment; web environment"},
			{"the variable on the install", func() { variable(control.VariableScope{Install: "acme"}, &control.Variable{Value: "us"}) },
				"cache environment; database environment; network environment; web environment"},
			{"a variable that the install's overrides", func() { variable(control.VariableScope{App: "shop"}, nil) }, ""},
			{"a version with one more component", func() {
				p.publish(strings.Replace(shop, "components:", "components:\n  queue: {type: terraform, source: ./queue}", 1))
			}, "cache version; database version; network version; queue new; web version"},
			{"a version without that component", func() { p.publish(shop) }, "cache version; database version; network version; queue removed; web version"},
		} {
			c.do()
			p.wantUndeployed("acme", c.change, c.want)
			deploy(control.NewDeployment{PlanOnly: true})
			p.wantUndeployed("acme", c.change+", planned only", c.want)
			deploy(control.NewDeployment{})
			p.wantUndeployed("acme", c.change+", deployed", "")
		}

		input("size", "6")
		input("size", "5")
		p.wantUndeployed("acme", "an input that has its old value again", "")
		deploy(control.NewDeployment{Kind: deployment.Teardown})
		p.wantUndeployed("acme", "after a teardown", "")
	})
}

// Each effective value is shown with its sources. A sensitive value is shown with its
// sources only, without the value itself.
func TestEffectiveValuesHaveTheirSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.must("set variables", func() error {
			_, err := p.SetVariables(p.ctx, control.User{Org: org}, control.VariableScope{App: "shop"},
				map[string]*control.Variable{"TOKEN": {Value: "hunter2-hunter2", Sensitive: true}, "REGION": {Value: "eu"}})
			return err
		})
		before := p.effective("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "")
		p.work()
		after := p.effective("acme")
		for _, c := range []struct {
			what string
			got  control.EffectiveValue
			want string
		}{
			{"an input with a default", after.Inputs["size"], `2 false [default]`},
			{"a sensitive input", after.Inputs["password"], ` true [install]`},
			{"a variable from an input", after.Vars["network"]["size"], `2 false [inputs.size]`},
			{"a variable from a sensitive input", after.Vars["database"]["password"], ` true [inputs.password]`},
			{"an output that does not exist yet", before.Vars["database"]["net"], ` false [components.network.outputs.id]`},
			{"an output", after.Vars["database"]["net"], `"id-of-network" false [components.network.outputs.id]`},
			{"a sensitive output", after.Vars["web"]["db"], ` true [components.database.outputs.secret]`},
			{"an environment variable", after.Environment["REGION"], `"eu" false [app shop]`},
			{"a sensitive environment variable", after.Environment["TOKEN"], ` true [app shop]`},
		} {
			if got := fmt.Sprintf("%s %t %v", c.got.Value, c.got.Sensitive, c.got.From); got != c.want {
				t.Errorf("%s is %s, want %s", c.what, got, c.want)
			}
		}
		if raw, err := json.Marshal([]control.Effective{before, after}); err != nil || strings.Contains(string(raw), "hunter2") || strings.Contains(string(raw), "secret-of") {
			t.Errorf("a sensitive value is in %s (%v)", raw, err)
		}
	})
}
