package control_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/fairlead/fairlead/pkg/seal"
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
		"the record is of a release that stored no fingerprints: all": {func(p *plane, e engine.Engine) {
			for _, name := range strings.Fields(all) {
				p.alter(e, componentKey(p.component("acme", name).V.Install, name), func(b string) string {
					return regexp.MustCompile(`"(var_digests|env_digest)":`).ReplaceAllString(b, `"earlier_$1":`)
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

// closedSealer opens only the places that open permits. It records each other place.
type closedSealer struct {
	seal.Sealer
	open    func(place string) bool
	refused []string
}

func (s *closedSealer) Open(ctx context.Context, sealed []byte, place string) ([]byte, error) {
	if !s.open(place) {
		s.refused = append(s.refused, place)
		return nil, errors.New("no value is opened here")
	}
	return s.Sealer.Open(ctx, sealed, place)
}

// closed makes the control plane open no sealed value while fn runs.
func (p *plane) closed(fn func()) {
	p.t.Helper()
	whole := p.Sealer
	s := &closedSealer{Sealer: whole, open: func(string) bool { return false }}
	p.Sealer = s
	fn()
	p.Sealer = whole
	if len(s.refused) > 0 {
		p.t.Errorf("the control plane opens %q", s.refused)
	}
}

// closedApp has secrets in each place that a comparison reads.
const closedApp = `fairlead: v1
name: shop
inputs:
  size: {type: number, default: 2}
  password: {type: string, sensitive: true, required: true}
  users: {type: map(list(string)), sensitive: true, default: {admin: [root]}}
  token: {generate: 32, sensitive: true}
components:
  database: {type: terraform, source: ./database, vars: {password: "${inputs.password}", size: "${inputs.size}"}}
  web:
    type: terraform
    source: ./web
    vars:
      url: "db://${components.database.outputs.secret}@${install.name}:${inputs.size}"
      host: "${components.database.outputs.connection.host}"
      nested: [{token: "${inputs.token}"}, "${components.database.outputs.id}"]
      admin: "${inputs.users.admin[0]}"
    env: {TOKEN: "x${inputs.token}"}
`

// connection returns outputs of database of which each is reported in another spelling each time.
func connection(host string, n int) map[string]map[string]control.Output {
	value := fmt.Sprintf(`{%s"host": %q, "port": 5432}`, strings.Repeat(" ", n), host)
	return map[string]map[string]control.Output{"database": {"connection": {Value: json.RawMessage(value), Sensitive: true}, "secret": {Value: json.RawMessage(`"s3cret"`), Sensitive: true}}}
}

// comparesWithoutOpening deploys an app with secrets, and changes one after the other.
func comparesWithoutOpening(p *plane) {
	t := p.t
	p.publish(closedApp)
	p.install("acme")
	variable := func(value string) {
		t.Helper()
		p.must("set a variable", func() error {
			_, err := p.SetVariables(p.ctx, control.User{Org: org}, control.VariableScope{App: "shop"}, map[string]*control.Variable{"API_KEY": {Value: value, Sensitive: true}})
			return err
		})
	}
	input := func(name, value string) {
		t.Helper()
		p.must("update", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{name: json.RawMessage(value)}})
			return err
		})
	}
	variable("k3y")
	input("users", `{"admin":["joe"]}`)
	p.outputs = connection("db.internal", 0)
	if got := p.plannedBy(control.NewDeployment{}); got != "database web" {
		t.Fatalf("the first deployment plans %q", got)
	}
	unchanged := func(when string) {
		t.Helper()
		p.closed(func() {
			p.wantUndeployed("acme", when, "")
			if _, err := p.Render(p.ctx, org, "acme", "", ""); err != nil {
				t.Errorf("%s: render: %v", when, err)
			}
			if got := p.plannedBy(control.NewDeployment{}); got != "" {
				t.Errorf("%s: planned: %q", when, got)
			}
		})
	}
	changed := func(when, undeployed, want string) {
		t.Helper()
		p.closed(func() { p.wantUndeployed("acme", when, undeployed) })
		if got := p.plannedBy(control.NewDeployment{}); got != want {
			t.Errorf("%s: planned: %q, want %q", when, got, want)
		}
		unchanged("after " + when)
	}
	unchanged("nothing changed")
	variable("k3y")
	input("password", `"hunter2-hunter2"`)
	unchanged("the same values were set again")
	p.outputs = connection("db.internal", 3)
	if got := p.plannedBy(control.NewDeployment{Refresh: true}); got != "database web" {
		t.Fatalf("a refresh plans %q", got)
	}
	unchanged("the same outputs were reported again")

	variable("an0ther")
	changed("another environment variable", "database environment; web environment", "database web")
	input("password", `"another-secret"`)
	changed("another secret input", "database variable password", "database")
	input("users", `{"admin":["eve"]}`)
	changed("another secret list", "web variable admin", "web")
	p.outputs = connection("db2.internal", 0)
	input("size", "3") // database is applied, and reports its outputs
	if got := p.plannedBy(control.NewDeployment{}); got != "database web" {
		t.Errorf("another secret output: planned: %q", got)
	}
	unchanged("after another secret output")
}

func TestSecretsAreComparedUnopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { comparesWithoutOpening(newPlane(t, enginetest.Memory())) })
}

func TestSecretsAreComparedUnopenedOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	comparesWithoutOpening(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestSecretsAreComparedUnopenedOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	comparesWithoutOpening(newPlaneAt(t, dynamoTable(t, "unopened"), c.now, c.sleep))
}

// Records of earlier releases have no fingerprints and no types. Their values must be compared unopened all the same: after one
// plan of each component, a deployment without a change has no job.
func TestSecretsWithoutFingerprintsAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Memory()
		p := newPlane(t, e)
		p.publish(closedApp)
		p.install("acme")
		p.must("set a variable", func() error {
			_, err := p.SetVariables(p.ctx, control.User{Org: org}, control.VariableScope{App: "shop"}, map[string]*control.Variable{"API_KEY": {Value: "k3y", Sensitive: true}})
			return err
		})
		p.outputs = connection("db.internal", 0)
		p.plannedBy(control.NewDeployment{})
		id := p.component("acme", "web").V.Install
		for _, k := range []engine.Key{{Partition: "ORG#default#INSTALL", Sort: "acme"}, {Partition: "ORG#default#VARIABLES", Sort: "APP#shop"}, componentKey(id, "database"), componentKey(id, "web")} {
			p.alter(e, k, func(b string) string {
				b = regexp.MustCompile(`,"(fingerprint|fingerprint_key|env_digest)":"[^"]*"`).ReplaceAllString(b, "")
				b = regexp.MustCompile(`("sealed":"[^"]*"(,"sensitive":true)?),"type":"[^"]*","size":[0-9]*`).ReplaceAllString(b, "$1")
				return regexp.MustCompile(`,"var_digests":{[^}]*}`).ReplaceAllString(b, "")
			})
		}
		if in, err := e.Get(p.ctx, engine.Key{Partition: "ORG#default#INSTALL", Sort: "acme"}); err != nil || regexp.MustCompile(`fingerprint|"type":"string"`).Match(in.Body) {
			t.Fatalf("the record is not that of an earlier release: %s, %v", in.Body, err)
		}
		p.closed(func() { p.wantUndeployed("acme", "a record without fingerprints", "") })
		if got := p.plannedBy(control.NewDeployment{}); got != "database web" {
			t.Errorf("the first deployment after the upgrade plans %q", got)
		}
		p.closed(func() {
			p.wantUndeployed("acme", "after one plan", "")
			if got := p.plannedBy(control.NewDeployment{}); got != "" {
				t.Errorf("the second deployment after the upgrade plans %q", got)
			}
		})
		p.must("update", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"another-secret"`)}})
			return err
		})
		if got := p.plannedBy(control.NewDeployment{}); got != "database" {
			t.Errorf("another secret plans %q", got)
		}
	})
}

// Outputs that are too large for a record are sealed as a whole, with the plain ones.
func TestLargeOutputsAreComparedUnopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		outputs := func(c string) {
			p.outputs = map[string]map[string]control.Output{"network": {"id": {Value: text(c, 100_000)}}, "database": {"secret": {Value: text(c, 100_000), Sensitive: true}}}
		}
		outputs("a")
		p.plannedBy(control.NewDeployment{})
		p.plannedBy(control.NewDeployment{Refresh: true}) // reports the same outputs, which another blob has then
		p.closed(func() {
			if got := p.plannedBy(control.NewDeployment{}); got != "" {
				t.Errorf("without a change, planned: %q", got)
			}
		})
		p.wantUndeployed("acme", "after a deployment", "") // it reads the blobs, because it shows plain outputs
		outputs("b")
		p.must("update", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
			return err
		})
		if got := p.plannedBy(control.NewDeployment{}); got != "cache database network web" {
			t.Errorf("after other outputs, planned: %q", got)
		}
	})
}

// A new value of one secret must be checked without the others.
func TestOneSecretIsChangedWithoutOpeningOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(closedApp)
		p.install("acme")
		change := func(name, value string) error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{name: json.RawMessage(value)}})
			return err
		}
		whole := p.Sealer
		s := &closedSealer{Sealer: whole, open: func(place string) bool { return strings.HasSuffix(place, "/fingerprints") }}
		p.Sealer = s
		if err := change("users", `{"admin":["joe"]}`); err != nil {
			t.Error(err)
		}
		if err := change("users", `{"admin":[1]}`); fairlead.CodeOf(err) != fairlead.CodeInvalidInputs {
			t.Errorf("a list of the wrong type: %v", err)
		}
		p.publish(strings.Replace(closedApp, "users: {type: map(list(string)), sensitive: true, default: {admin: [root]}}", "users: {type: map(list(number)), sensitive: true, default: {admin: [1]}}", 1))
		_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy}, "wrong")
		if fairlead.CodeOf(err) != fairlead.CodeInvalidInputs || !strings.Contains(err.Error(), "users") || strings.Contains(err.Error(), "joe") {
			t.Errorf("a version with another type of a stored secret: %v", err)
		}
		p.Sealer = whole
		if len(s.refused) > 0 {
			t.Errorf("the control plane opens %q", s.refused)
		}
	})
}
