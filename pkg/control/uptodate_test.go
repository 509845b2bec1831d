package control_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// plannedBy deploys acme and returns the components that got a plan job, sorted.
func (p *plane) plannedBy(in control.NewDeployment) string {
	p.t.Helper()
	in.AutoApprove = !in.PlanOnly
	id := p.deploy("acme", in, "")
	p.work()
	if d := p.deployment(id); d.State != deployment.Succeeded {
		p.t.Fatalf("the deployment is %s: %s", d.State, nodes(d))
	}
	jobs, err := p.DeploymentJobs(p.ctx, org, id)
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, j := range jobs {
		if j.Operation.Plans() {
			names = append(names, j.Component)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// A deployment of many components of which few have changed must cost only the jobs of
// those few.
func TestUnchangedComponentsHaveNoJob(t *testing.T) {
	const all = "cache database network web"
	input := func(name, value string) func(*plane, engine.Engine) {
		return func(p *plane, _ engine.Engine) {
			p.must("update", func() error {
				_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{name: json.RawMessage(value)}})
				return err
			})
		}
	}
	variable := func(value string) func(*plane, engine.Engine) {
		return func(p *plane, _ engine.Engine) {
			p.must("set a variable", func() error {
				_, err := p.SetVariables(p.ctx, control.User{Org: org}, control.VariableScope{App: "shop"}, map[string]*control.Variable{"REGION": {Value: value}})
				return err
			})
		}
	}
	publish := func(old, new string) func(*plane, engine.Engine) {
		return func(p *plane, _ engine.Engine) { p.publish(strings.Replace(shop, old, new, 1)) }
	}
	for name, tt := range map[string]struct {
		change func(*plane, engine.Engine)
		in     control.NewDeployment
		want   string
	}{
		"nothing changed": {func(*plane, engine.Engine) {}, control.NewDeployment{}, ""},
		"nothing changed, and only plans are asked for":       {func(*plane, engine.Engine) {}, control.NewDeployment{PlanOnly: true}, ""},
		"a refresh plans all":                                 {func(*plane, engine.Engine) {}, control.NewDeployment{Refresh: true}, all},
		"an input: those that get it":                         {input("size", "5"), control.NewDeployment{}, "network"},
		"a secret input: those that get it":                   {input("password", `"another-secret"`), control.NewDeployment{}, "database"},
		"an environment variable: all":                        {variable("eu"), control.NewDeployment{}, all},
		"a version with another text: none":                   {publish("name: shop", "name: shop\ndescription: new"), control.NewDeployment{}, ""},
		"a version with another source: the component":        {publish("source: ./cache", "source: ./cache2"), control.NewDeployment{}, "cache"},
		"a version with another variable":                     {publish(`cache: "${components.cache.outputs.id}"`, `cache: none`), control.NewDeployment{}, "web"},
		"a version with one more component":                   {publish("components:", "components:\n  queue: {type: terraform, source: ./queue}"), control.NewDeployment{}, "queue"},
		"the customer's secrets are not known: the component": {publish("source: ./cache", "source: ./cache, secrets: [TOKEN]"), control.NewDeployment{}, "cache"},
		"a person pushed a state: the component": {func(p *plane, _ engine.Engine) {
			p.must("push", func() error {
				_, err := p.PushState(p.ctx, org, "acme", "cache", []byte(`{"version":4,"serial":99,"lineage":"l","resources":[]}`))
				return err
			})
		}, control.NewDeployment{}, "cache"},
		"the record is of a release that kept no base: all": {func(p *plane, e engine.Engine) {
			for _, name := range strings.Fields(all) {
				p.alter(e, componentKey(p.component("acme", name).V.Install, name), func(b string) string {
					return strings.Replace(b, `"base":`, `"bass":`, 1)
				})
			}
		}, control.NewDeployment{}, all},
		"the install was bound again, and its states may be lost: all": {func(p *plane, e engine.Engine) {
			p.alter(e, engine.Key{Partition: "ORG#default#INSTALL", Sort: "acme"}, func(b string) string {
				return regexp.MustCompile(`"at":"[^"]*"`).ReplaceAllString(b, `"at":"2026-11-01T00:00:00Z"`)
			})
		}, control.NewDeployment{}, all},
		"an apply failed: the component, until it succeeds": {func(p *plane, e engine.Engine) {
			input("size", "7")(p, e)
			p.stepFault = func(s events.JobSpec) stepFault {
				if s.Operation == "apply" {
					return fails
				}
				return none
			}
			p.deploy("acme", control.NewDeployment{AutoApprove: true}, "")
			p.work()
			p.stepFault = nil
			input("size", "2")(p, e) // the value of the last successful apply
		}, control.NewDeployment{}, "network"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Memory()
				p := newPlane(t, e)
				p.publish(shop)
				p.install("acme")
				if got := p.plannedBy(control.NewDeployment{}); got != all {
					t.Fatalf("the first deployment plans %q", got)
				}
				tt.change(p, e)
				if got := p.plannedBy(tt.in); got != tt.want {
					t.Errorf("planned: %q, want %q", got, tt.want)
				}
				if tt.in.PlanOnly {
					return
				}
				newest, err := p.App(p.ctx, org, "shop")
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range strings.Fields(all) {
					if k := p.component("acme", name); k.V.Version != newest.Newest.ID {
						t.Errorf("%s has the version %s, want %s", name, k.V.Version, newest.Newest.ID)
					}
				}
			})
		})
	}
}

// An option decides where a component lives, as a variable decides what it is.
func TestOptionsReachTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		app := "fairlead: v1\nname: shop\ninputs: {password: {sensitive: true}, space: {default: one}}\ncomponents:\n" +
			"  web: {type: plugin, source: ./web, options: {namespace: \"${inputs.space}\", deep: {a: [1]}}, vars: {size: 2}}\n"
		p.publish(app)
		p.install("acme")
		var specs []string
		p.stepFault = func(s events.JobSpec) stepFault {
			options, err := json.Marshal(s.Options)
			vars, err2 := json.Marshal(s.Vars)
			if err != nil || err2 != nil {
				t.Error(err, err2)
			}
			specs = append(specs, fmt.Sprintf("%s %s %s", s.Operation, options, vars))
			return none
		}
		p.plannedBy(control.NewDeployment{})
		const vars = ` {"size":{"value":2}}`
		one := ` {"deep":{"value":{"a":[1]}},"namespace":{"value":"one"}}` + vars
		if got := strings.Join(specs, "\n"); got != "plan"+one+"\napply"+one {
			t.Errorf("the specs are\n%s", got)
		}
		if got := p.plannedBy(control.NewDeployment{}); got != "" {
			t.Errorf("without a change, planned: %q", got)
		}
		p.must("update", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"space": json.RawMessage(`"two"`)}})
			return err
		})
		p.wantUndeployed("acme", "another option", "web variable options.namespace")
		if got := p.plannedBy(control.NewDeployment{}); got != "web" {
			t.Errorf("after a change of an option, planned: %q", got)
		}
		specs = nil
		p.succeeds("gone", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true})
		two := strings.Replace(one, `"one"`, `"two"`, 1)
		if got := strings.Join(specs, "\n"); got != "plan-destroy"+two+"\ndestroy"+two {
			t.Errorf("the specs of the teardown are\n%s", got)
		}
	})
}

// The value of an option is shown in plans.
func TestSensitiveOptionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish("fairlead: v1\nname: shop\ninputs: {password: {sensitive: true}}\ncomponents:\n" +
			"  db: {type: terraform, source: ./db}\n  web: {type: plugin, source: ./web, options: {namespace: \"${components.db.outputs.secret}\"}}\n")
		p.install("acme")
		p.outputs = map[string]map[string]control.Output{"db": {"secret": {Value: json.RawMessage(`"hunter2"`), Sensitive: true}}}
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "")
		p.work()
		d := p.deployment(id)
		if n := d.Node("web"); n.State != deployment.NodeFailed || n.Reason != "sensitive-option" || strings.Contains(n.Message, "hunter2") {
			t.Errorf("the component is %+v", n)
		}
	})
}

func componentKey(id fairlead.InstallID, name string) engine.Key {
	return engine.Key{Partition: "INSTALL#" + string(id), Sort: "COMPONENT#" + name}
}

// A change that others made to the resources is found by a refresh only.
func TestDriftIsFoundByARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.plannedBy(control.NewDeployment{})
		p.cloud["network"] = "drifted"
		for i, tt := range []struct {
			in   control.NewDeployment
			want string
		}{
			{control.NewDeployment{AutoApprove: true}, "network=unchanged cache=unchanged database=unchanged web=unchanged"},
			{control.NewDeployment{AutoApprove: true, Refresh: true}, "network=applied cache=unchanged database=unchanged web=unchanged"},
		} {
			id := p.deploy("acme", tt.in, fmt.Sprint(i))
			p.work()
			p.expect(id, deployment.Succeeded, tt.want)
		}
	})
}
