package control_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// seeded is a database, a script that fills it, and what uses both.
const seeded = `fairlead: v1
name: shop
inputs:
  size: {type: number, default: 2}
  password: {type: string, sensitive: true, required: true}
components:
  database: {type: terraform, source: ./database}
  seed:
    type: script
    source: ./seed
    vars: {db: "${components.database.outputs.secret}", size: "${inputs.size}"}
  web: {type: terraform, source: ./web, vars: {rows: "${components.seed.outputs.id}"}}
`

// scripted runs a test with an install of seeded, whose jobs' specs are kept.
func scripted(t *testing.T, test func(p *plane, specs *[]events.JobSpec)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(seeded)
		p.install("acme")
		var specs []events.JobSpec
		p.misfortune = func(s events.JobSpec) misfortune { specs = append(specs, s); return none }
		test(p, &specs)
	})
}

// A script was given a place for a state, of which it knows nothing, and the agent
// would take the role that makes infrastructure.
func TestAScriptIsAJobOfItsOwnPluginWithoutAState(t *testing.T) {
	scripted(t, func(p *plane, specs *[]events.JobSpec) {
		p.expect(p.deployed(), deployment.Succeeded, "database=applied seed=applied web=applied")
		for _, s := range *specs {
			script := s.Component == "seed"
			if (s.Plugin == "script") != script || (s.State == nil) != script {
				t.Errorf("%s of %s is of the plugin %s, with the state %v", s.Operation, s.Component, s.Plugin, s.State)
			}
		}
	})
}

func (p *plane) deployed() fairlead.DeploymentID {
	p.t.Helper()
	id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d"+fairlead.RandomIDs(p.Now)("x"))
	p.work()
	return id
}

// An unchanged script has no outputs in its report, as it was not run: those that it
// had were lost, and what needs them could not be planned.
func TestUnchangedScriptIsNotRunAgain(t *testing.T) {
	scripted(t, func(p *plane, specs *[]events.JobSpec) {
		p.deployed()
		p.expect(p.deployed(), deployment.Succeeded, "database=unchanged seed=unchanged web=unchanged")
		out, err := p.Outputs(p.ctx, org, "acme", true)
		if err != nil || string(out["seed"]["id"].Value) != `"id-of-seed"` || string(out["seed"]["secret"].Value) != `"secret-of-seed"` {
			t.Errorf("the outputs are %v, %v", out["seed"], err)
		}
		*specs = nil
		p.must("change an input", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
			return err
		})
		p.expect(p.deployed(), deployment.Succeeded, "database=unchanged seed=applied web=unchanged")
		for _, s := range *specs {
			if s.Component != "seed" || s.Operation != "plan" {
				continue
			}
			if s.Applied == nil || strings.Join(s.Applied.Changed(s.Artifact.Digest, s.Vars), " ") != "vars.size" {
				t.Errorf("the plan is given %+v", s.Applied)
			}
			if b, err := json.Marshal(s.Applied); err != nil || strings.Contains(string(b), "secret-of-database") {
				t.Errorf("it holds a value: %s, %v", b, err)
			}
		}
	})
}

// A plan that sees nothing of what is there found no change after an apply was lost,
// and what had been half done counted as done.
func TestALostApplyOfAScriptWaitsForAPerson(t *testing.T) {
	for name, what := range map[string]misfortune{"before its work": diesBefore, "after its work": diesAfter, "with its host": vanishes} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(p *plane, specs *[]events.JobSpec) {
				p.deployed() // so that something is there that the lost apply may have changed
				p.must("change an input", func() error {
					_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
					return err
				})
				p.misfortune = func(s events.JobSpec) misfortune {
					*specs = append(*specs, s)
					if s.Component == "seed" && s.Operation == "apply" {
						return what
					}
					return none
				}
				*specs, p.applied = nil, nil
				id := p.deployed()
				d := p.deployment(id)
				if d.State != deployment.Waiting || d.Node("seed").State != deployment.Awaiting || !d.Node("seed").Lost {
					t.Fatalf("deployment is %s: %s", d.State, nodes(d))
				}
				last := (*specs)[len(*specs)-1]
				if last.Operation != "plan" || last.Applied != nil {
					t.Errorf("the plan after the loss, %s, takes %+v for what is there", last.Operation, last.Applied)
				}
				_, text := p.situation(id)
				if !strings.Contains(text, "cannot show what the lost job changed") || strings.Contains(text, "state") && strings.Contains(text, "push-state") {
					t.Errorf("a person is told:\n%s", text)
				}
				// A canceled deployment, and another one that is auto-approved, leave it to a person.
				p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, id); return err })
				p.work()
				p.misfortune = nil
				id = p.deployed()
				if d := p.deployment(id); d.State != deployment.Waiting || d.Node("seed").State != deployment.Awaiting {
					t.Fatalf("the next deployment is %s: %s", d.State, nodes(d))
				}
				p.must("approve", func() error { _, err := p.ApproveDeployment(p.ctx, org, id, []string{"seed"}, nil); return err })
				p.work()
				if d := p.deployment(id); d.State != deployment.Succeeded || d.Node("seed").State != deployment.Applied {
					t.Errorf("deployment is %s: %s", d.State, nodes(d))
				}
				if got := slices.DeleteFunc(slices.Clone(p.applied), func(a string) bool { return a != "apply seed" }); what == diesAfter && len(got) != 2 {
					t.Errorf("it was applied as %v", p.applied)
				}
			})
		})
	}
}

// What made a component is what can destroy it: the state of the old one would be
// nobody's.
func TestAComponentKeepsItsType(t *testing.T) {
	scripted(t, func(p *plane, _ *[]events.JobSpec) {
		p.deployed()
		p.publish(strings.Replace(seeded, "type: script\n", "type: terraform\n", 1))
		_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, AutoApprove: true}, "changed")
		if fairlead.CodeOf(err) != "component-type-changed" || fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("it was not refused: %v", err)
		}
		// Once it is not there, its name is free.
		p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "teardown")
		p.work()
		if got := strings.Join(p.applied[len(p.applied)-3:], ", "); got != "destroy web, destroy seed, destroy database" {
			t.Errorf("the teardown was %s", got)
		}
		p.expect(p.deployed(), deployment.Succeeded, "database=applied seed=applied web=applied")
	})
}

// There is no state to be pushed, nor one to be moved.
func TestAScriptHasNoState(t *testing.T) {
	scripted(t, func(p *plane, _ *[]events.JobSpec) {
		p.deployed()
		_, err := p.PushState(p.ctx, org, "acme", "seed", []byte(`{"version": 4, "lineage": "x", "serial": 9}`))
		if fairlead.CodeOf(err) != "no-state" {
			t.Errorf("a state was pushed: %v", err)
		}
		in, err := p.Install(p.ctx, org, "acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range in.Parts {
			if (c.State == nil) != (c.Name == "seed") {
				t.Errorf("%s: the state is %+v", c.Name, c.State)
			}
		}
	})
}

// A plan of a script has the names of secrets alone, so its digest does not change with
// one. It need not: no input changes while a deployment waits for its approval.
func TestSecretIsFixedWhileApprovalWaits(t *testing.T) {
	scripted(t, func(p *plane, specs *[]events.JobSpec) {
		p.deployed()
		p.must("change an input", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
			return err
		})
		*specs = nil
		id := p.deploy("acme", control.NewDeployment{}, "asks")
		p.work()
		if d := p.deployment(id); d.Node("seed").State != deployment.Awaiting {
			t.Fatalf("deployment is %s: %s", d.State, nodes(d))
		}
		_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"another"`)}})
		if fairlead.CodeOf(err) != "deployment-runs" {
			t.Errorf("the secret changed: %v", err)
		}
		p.must("approve", func() error { _, err := p.ApproveDeployment(p.ctx, org, id, []string{"seed"}, nil); return err })
		p.work()
		given := map[string]map[string]events.SpecVar{}
		for _, s := range *specs {
			if s.Component == "seed" {
				given[s.Operation] = s.Vars
			}
		}
		if !given["apply"]["db"].Sensitive || !reflect.DeepEqual(given["plan"], given["apply"]) {
			t.Errorf("planned with %v, applied with %v", given["plan"], given["apply"])
		}
	})
}
