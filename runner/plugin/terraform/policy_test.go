package terraform_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/tofu"
)

// judge is a plugin.Policy that asks a policy, and records what it was asked.
type judge struct {
	policy  *policy.Policy
	asked   []string
	applied []string // addresses of the changes of applies
}

func judgeOf(t *testing.T, text string) *judge {
	t.Helper()
	p, problems := policy.Parse("policy", []byte("version: 1\n"+text))
	if p == nil {
		t.Fatal(problems)
	}
	return &judge{policy: p}
}

func (j *judge) decide(q policy.Request) error {
	q.Now = time.Unix(0, 0)
	if d := j.policy.Decide(q); d.Effect != policy.Allow {
		return plugin.Errorf(fairlead.ReasonPolicyDenied, "%s: %s", d.Place(), d.Reason)
	}
	return nil
}

func (j *judge) Module(m policy.Module) error {
	j.asked = append(j.asked, "module")
	return j.decide(policy.Request{Operation: job.OpPlan, Module: &m})
}

func (j *judge) Planned(_ context.Context, b *changeset.Builder, _ *changeset.Base, digest string) error {
	j.asked = append(j.asked, "planned")
	if digest == "" {
		return errors.New("no digest")
	}
	return j.decide(policy.Request{Operation: job.OpPlan, Plan: &policy.Plan{Changes: b.All()}})
}

func (j *judge) Applies(_ context.Context, b *changeset.Builder, _ *changeset.Base, digest string) error {
	j.asked = append(j.asked, "applies")
	for _, c := range b.All() {
		j.applied = append(j.applied, string(c.Action)+" "+c.Address)
	}
	return j.decide(policy.Request{Operation: job.OpApply, Plan: &policy.Plan{Changes: b.All()}})
}

// runUnder runs a job under a policy.
func runUnder(t *testing.T, j *judge, data, tool string, sp plugin.Spec, sources map[string]map[string]string) (plugin.Result, error) {
	t.Helper()
	attempt := string(sp.Job) + "-" + sp.Operation
	env := plugintest.Env(t, data, attempt, plugintest.NewLog(), sources, sp)
	if j != nil {
		env.Policy = j
	}
	return terraform.New(terraform.Config{Data: data, Tool: tool, Environ: []string{"PATH=" + os.Getenv("PATH")}}).Run(t.Context(), sp, env)
}

func applyOf(sp plugin.Spec, planned plugin.Result) plugin.Spec {
	sp.Operation, sp.Plan, sp.Epoch = "apply", &events.PlanRef{Job: sp.Job, Digest: planned.Plan.Digest}, 2
	return sp
}

// A control plane that stores saved plans can replace one, together with its digest. The plan file has a copy of the module, which an
// apply runs, whatever the artifact has: the policy judges the copy, and the changes that the tool reads from the plan.
func TestForgedPlanIsJudgedByItsContent(t *testing.T) {
	for name, tool := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			data, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
			modules := map[string]map[string]string{
				"clean":  {"main.tf": `resource "terraform_data" "x" {}`},
				"forged": {"main.tf": "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" {\n    command = \"touch " + ran + "\"\n  }\n}"},
				"other":  {"main.tf": `resource "terraform_data" "other" {}`},
			}
			for _, c := range []struct{ planned, policy, denied string }{
				{"forged", "provisioners: []", `provisioners (line 2): it does not list "local-exec", which m-/main.tf:2 has`},
				{"other", "deny: {r: {addresses: ['*.other']}}", `deny.r (line 2): create of "terraform_data.other"`},
				{"clean", "provisioners: []\ndeny: {r: {addresses: ['*.other']}}", ""},
			} {
				sp := spec(1, c.planned)
				planned, err := runUnder(t, nil, data, tool, sp, modules) // what the vendor puts in place of the plan
				if err != nil {
					t.Fatal(err)
				}
				sp = applyOf(sp, planned)
				sp.Artifact = &events.ArtifactRef{Digest: "clean"}
				j := judgeOf(t, c.policy)
				res, err := runUnder(t, j, data, tool, sp, modules)
				switch {
				case c.denied == "" && (err != nil || !res.Mutated || !slices.Equal(j.applied, []string{"create terraform_data.x"})):
					t.Errorf("%s: %v, applied %q", c.planned, err, j.applied)
				case c.denied != "" && (err == nil || err.Error() != c.denied || res.Mutated || plugin.ReasonOf(err) != fairlead.ReasonPolicyDenied):
					t.Errorf("%s: %v (mutated %t), want %q", c.planned, err, res.Mutated, c.denied)
				}
				if _, err := os.Stat(ran); err == nil {
					t.Fatalf("%s: the program of the forged plan ran", c.planned)
				}
			}
		})
	}
}

// The tool is not started for a plan that the policy denies before it, and a plan that it denies afterwards is not saved.
func TestDeniedPlanIsNotSaved(t *testing.T) {
	for name, tool := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			modules := map[string]map[string]string{"called": {
				"main.tf":        "module \"m\" {\n  source = \"./child\"\n}\nresource \"terraform_data\" \"x\" {}",
				"child/child.tf": "resource \"terraform_data\" \"y\" {\n  provisioner \"local-exec\" {\n    command = \"true\"\n  }\n}",
			}}
			for _, c := range []struct {
				policy, denied string
				asked          []string
			}{
				{"provisioners: []", `provisioners (line 2): it does not list "local-exec", which child/child.tf:2 has`, []string{"module"}},
				{"deny: {r: {addresses: ['module.m.*']}}", `deny.r (line 2): create of "module.m.terraform_data.y"`, []string{"module", "planned"}},
			} {
				data := t.TempDir()
				j := judgeOf(t, c.policy)
				_, err := runUnder(t, j, data, tool, spec(1, "called"), modules)
				if err == nil || err.Error() != c.denied || !slices.Equal(j.asked, c.asked) {
					t.Errorf("%s: %v after %q, want %q after %q", c.policy, err, j.asked, c.denied, c.asked)
				}
				if saved, _ := filepath.Glob(filepath.Join(data, "plans", "*")); len(saved) > 0 {
					t.Errorf("%s: the plan is saved in %q", c.policy, saved)
				}
			}
		})
	}
}
