package control_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
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

// seeded is an app with three components: a database, a script that fills the database, and
// a component that uses the script's output.
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

// scripted runs test with an install of the app seeded, and appends the job specs of the
// install to specs.
func scripted(t *testing.T, test func(p *plane, specs *[]events.JobSpec)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(seeded)
		p.install("acme")
		var specs []events.JobSpec
		p.stepFault = func(s events.JobSpec) stepFault { specs = append(specs, s); return none }
		test(p, &specs)
	})
}

// The job spec of a script names the plugin of scripts, and has no state.
func TestScriptHasItsOwnPluginAndNoState(t *testing.T) {
	scripted(t, func(p *plane, specs *[]events.JobSpec) {
		p.expect(p.deployed(), deployment.Succeeded, "database=applied seed=applied web=applied")
		for _, s := range *specs {
			script := s.Component == "seed"
			if (s.Plugin == "script") != script || (s.State == nil) != script {
				t.Errorf("%s of %s has the plugin %s and the state %v", s.Operation, s.Component, s.Plugin, s.State)
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

// If a script did not change, the step does not run it, and the report has no outputs. The
// component keeps its earlier outputs. Without them, the components that use these outputs
// could not be planned.
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
				t.Errorf("the plan gets %+v", s.Applied)
			}
			if b, err := json.Marshal(s.Applied); err != nil || strings.Contains(string(b), "secret-of-database") {
				t.Errorf("the spec contains a value: %s, %v", b, err)
			}
		}
	})
}

// A spec had digests of secrets under the identifier of its job, so a reader of the spec could try short secrets.
func TestSecretCannotBeGuessedFromASpec(t *testing.T) {
	scripted(t, func(p *plane, specs *[]events.JobSpec) {
		p.deployed()
		*specs = nil
		p.plannedBy(control.NewDeployment{Refresh: true})
		plans := 0
		for _, s := range *specs {
			if s.Component != "seed" || s.Operation != "plan" {
				continue
			}
			plans++
			if s.Applied == nil || s.Applied.Changed(s.Artifact.Digest, s.Vars) != nil {
				t.Errorf("the plan of the same script gets %+v", s.Applied)
			}
			spec, err := json.Marshal(s.Applied)
			if err != nil {
				t.Fatal(err)
			}
			secrets := 0
			for name, v := range s.Vars {
				if !v.Sensitive {
					continue
				}
				secrets++
				for _, key := range []string{"", string(s.Job), string(s.Install)} {
					h := hmac.New(sha256.New, []byte(key))
					h.Write([]byte(name + "\n"))
					h.Write(v.Value)
					plain := sha256.Sum256(v.Value)
					for _, sum := range [][]byte{h.Sum(nil), plain[:]} {
						if strings.Contains(string(spec), base64.StdEncoding.EncodeToString(sum)) {
							t.Errorf("the spec has a digest of the secret %s under the key %q: %s", name, key, spec)
						}
					}
				}
			}
			if secrets == 0 {
				t.Error("the script gets no secret")
			}
		}
		if plans != 1 {
			t.Errorf("%d plans of the script, want 1", plans)
		}
	})
}

// A script's plan does not read the cloud, so the plan cannot show what a lost apply
// changed. So the component waits for an approval, and its plan is not compared with an
// earlier apply.
func TestLostScriptApplyWaitsForApproval(t *testing.T) {
	for name, what := range map[string]stepFault{"the step dies before its work": diesBefore, "the step dies after its work": diesAfter, "the host vanishes": vanishes} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(p *plane, specs *[]events.JobSpec) {
				p.deployed() // so that the lost apply changes an existing component
				p.must("change an input", func() error {
					_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
					return err
				})
				p.stepFault = func(s events.JobSpec) stepFault {
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
					t.Errorf("the job after the loss is a %s that compares with %+v", last.Operation, last.Applied)
				}
				_, text := p.situation(id)
				if !strings.Contains(text, "cannot show what the lost job changed") || strings.Contains(text, "state") && strings.Contains(text, "push-state") {
					t.Errorf("the situations are:\n%s", text)
				}
				// The next deployment waits for an approval too, although it has auto-approval.
				p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, id); return err })
				p.work()
				p.stepFault = nil
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
					t.Errorf("the applies were %v", p.applied)
				}
			})
		})
	}
}

// Only the component type that created a component can destroy it. So a deployment that
// changes the type is refused. Otherwise no job could destroy what the old type created.
func TestChangedComponentTypeIsRefused(t *testing.T) {
	scripted(t, func(p *plane, _ *[]events.JobSpec) {
		p.deployed()
		p.publish(strings.Replace(seeded, "type: script\n", "type: terraform\n", 1))
		_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, AutoApprove: true}, "changed")
		if fairlead.CodeOf(err) != "component-type-changed" || fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("the deployment returns %v", err)
		}
		// After a teardown, the component can have another type.
		p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "teardown")
		p.work()
		if got := strings.Join(p.applied[len(p.applied)-3:], ", "); got != "destroy web, destroy seed, destroy database" {
			t.Errorf("the teardown was %s", got)
		}
		p.expect(p.deployed(), deployment.Succeeded, "database=applied seed=applied web=applied")
	})
}

// A script has no state. So a push of its state is refused, and its component is shown
// without a state.
func TestScriptHasNoState(t *testing.T) {
	scripted(t, func(p *plane, _ *[]events.JobSpec) {
		p.deployed()
		_, err := p.PushState(p.ctx, org, "acme", "seed", []byte(`{"version": 4, "lineage": "x", "serial": 9}`))
		if fairlead.CodeOf(err) != "no-state" {
			t.Errorf("the push returns %v", err)
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

// A script's plan contains only the names of secrets, so the digest of the plan does not
// depend on the values of the secrets. The values are the same at the apply, because no
// input can change while a deployment waits for approval.
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
			t.Errorf("the update returns %v", err)
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
