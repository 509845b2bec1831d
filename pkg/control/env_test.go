package control_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// The environment variables of a component reach its jobs as texts, and a new value is a change.
func TestEnvironmentOfAComponentReachesItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		app := func(retries string) string {
			return appOf("  web: {type: terraform, source: ./web, vars: {a: b}, env: {RETRIES: " + retries + `, TOKEN: "${inputs.password}", WHERE: "${install.name}"}}` + "\n")
		}
		p.publish(app("5"))
		p.install("acme")
		var specs []events.JobSpec
		p.stepFault = func(s events.JobSpec) stepFault { specs = append(specs, s); return none }
		p.succeeds("first", control.NewDeployment{AutoApprove: true})
		if len(specs) != 2 {
			t.Fatalf("%d jobs ran, want a plan and an apply", len(specs))
		}
		for _, s := range specs {
			for name, want := range map[string]events.SpecVar{"RETRIES": {Value: json.RawMessage(`"5"`)}, "WHERE": {Value: json.RawMessage(`"acme"`)},
				"TOKEN": {Value: json.RawMessage(`"hunter2-hunter2"`), Sensitive: true}} {
				if got := s.AppEnv[name]; string(got.Value) != string(want.Value) || got.Sensitive != want.Sensitive {
					t.Errorf("the %s has %s = %s (sensitive: %v), want %s", s.Operation, name, got.Value, got.Sensitive, want.Value)
				}
			}
			if len(s.Vars) != 1 || len(s.AppEnv) != 3 {
				t.Errorf("the %s has the variables %v and the environment %v", s.Operation, s.Vars, s.AppEnv)
			}
		}
		specs = nil
		p.succeeds("again", control.NewDeployment{AutoApprove: true})
		if len(specs) != 0 {
			t.Errorf("an unchanged component has %d jobs", len(specs))
		}
		p.publish(app("6"))
		p.succeeds("changed", control.NewDeployment{AutoApprove: true})
		if len(specs) == 0 {
			t.Error("a component with a new environment variable has no job")
		}
	})
}

// Only a deployment knows the type of an output.
func TestListInTheEnvironmentFailsItsComponent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(appOf("  db: {type: terraform, source: ./db}\n" + `  web: {type: terraform, source: ./web, env: {ZONES: "${components.db.outputs.zones}"}}` + "\n"))
		p.install("acme")
		p.outputs = map[string]map[string]control.Output{"db": {"zones": {Value: json.RawMessage(`["a"]`)}}}
		d := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "1")
		p.work()
		got := p.deployment(d)
		if n := got.Node("web"); got.State != deployment.Failed || n.Reason != fairlead.CodeInvalidVariable.Reason() || n.State != deployment.NodeFailed {
			t.Errorf("the deployment is %s: %+v", got.State, n)
		}
	})
}
