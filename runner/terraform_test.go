package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
)

const exampleModule = `
variable "name" { type = string }
variable "password" {
  type      = string
  sensitive = true
}
resource "terraform_data" "it" {
  input = { name = var.name, password = var.password }
}
output "nothing" { value = null }
output "name" { value = terraform_data.it.output.name }
output "password" {
  value     = terraform_data.it.output.password
  sensitive = true
}
`

const password = "correct-horse-battery"

func vars(name string) map[string]events.SpecVar {
	n, _ := json.Marshal(name)
	return map[string]events.SpecVar{
		"name":     {Value: n},
		"password": {Value: json.RawMessage(`"` + password + `"`), Sensitive: true},
	}
}

func spec(operation, storage string, ref *events.ArtifactRef) events.JobSpec {
	return events.JobSpec{Plugin: "terraform", Operation: operation, Install: "ins_1", InstallName: "acme", Component: "web",
		Timeout: 120, Grace: 5, Artifact: ref,
		State: &events.StateRef{Storage: storage, Key: "ins_1/web", Path: "/runner/v1/state/ins_1/web"}}
}

func planSpec(storage string, ref *events.ArtifactRef) events.JobSpec {
	sp := spec("plan", storage, ref)
	sp.Vars = vars("one")
	return sp
}

func applySpec(operation, storage string, ref *events.ArtifactRef, plan plane.Job) events.JobSpec {
	sp := spec(operation, storage, ref)
	sp.Plan = &events.PlanRef{Job: fairlead.JobID(plan.ID), Digest: plan.Finish.Plan.Digest}
	return sp
}

func succeeded(t *testing.T, j plane.Job) plane.Job {
	t.Helper()
	if j.Finish.Outcome != "succeeded" {
		t.Fatalf("%s ended as %+v, with the log:\n%s", j.Spec.Operation, *j.Finish, j.Log)
	}
	if strings.Contains(string(j.Log), password) {
		t.Errorf("the log of %s has the password:\n%s", j.Spec.Operation, j.Log)
	}
	return j
}

// The main case: a component is planned, applied, planned without changes, and destroyed. The test uses each tool with each
// storage.
func TestPlanApplyNoChangeDestroy(t *testing.T) {
	t.Parallel()
	for tool, path := range tofu.Tools(t) {
		for _, storage := range []string{"local", "http"} {
			t.Run(tool+"/"+storage, func(t *testing.T) {
				t.Parallel()
				s := plane.New(t, plane.Options{})
				a := startAgent(t, s, "", "FAIRLEAD_TOFU="+path)
				ref := s.Push(map[string]string{"main.tf": exampleModule})

				plan := succeeded(t, s.UntilFinished(s.Queue(planSpec(storage, ref))))
				p := plan.Finish.Plan
				if p.NoOp || p.Changes.Add != 1 || p.Changes.Destroy != 0 || !p.Changes.Outputs || plan.Finish.Mutated {
					t.Errorf("plan: %+v", plan.Finish)
				}
				set, err := json.Marshal(p.ChangeSet)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(set), password) || !strings.Contains(string(set), changeset.Sensitive) || !changes(p.ChangeSet, "terraform_data.it") {
					t.Errorf("change set: %s", set)
				}

				apply := succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", storage, ref, plan))))
				if !apply.Finish.Mutated || string(apply.Finish.Outputs["name"].Value) != `"one"` ||
					!apply.Finish.Outputs["password"].Sensitive || string(apply.Finish.Outputs["password"].Value) != `"`+password+`"` {
					t.Errorf("apply: %+v", apply.Finish)
				}

				again := succeeded(t, s.UntilFinished(s.Queue(planSpec(storage, ref))))
				if n := len(again.Finish.Outputs); n != 2 || n != len(apply.Finish.Outputs) {
					t.Errorf("outputs after the apply %v, of the plan without changes %v", apply.Finish.Outputs, again.Finish.Outputs)
				}
				if !again.Finish.Plan.NoOp || string(again.Finish.Outputs["name"].Value) != `"one"` || !again.Finish.Outputs["password"].Sensitive {
					t.Errorf("plan without changes: %+v", again.Finish)
				}

				sp := planSpec(storage, ref)
				sp.Operation = "plan-destroy"
				down := succeeded(t, s.UntilFinished(s.Queue(sp)))
				if down.Finish.Plan.Changes.Destroy != 1 {
					t.Errorf("plan-destroy: %+v", down.Finish.Plan)
				}
				gone := succeeded(t, s.UntilFinished(s.Queue(applySpec("destroy", storage, ref, down))))
				if len(gone.Finish.Outputs) != 0 || !gone.Finish.Mutated {
					t.Errorf("destroy: %+v", gone.Finish)
				}
				if d := succeeded(t, s.UntilFinished(s.Queue(sp))); !d.Finish.Plan.NoOp {
					t.Errorf("plan-destroy of nothing: %+v", d.Finish.Plan)
				}
				s.Until("nothing left on disk", a.empty)
				noSecretsOnDisk(t, a.Data, storage)
			})
		}
	}
}

// noSecretsOnDisk asserts that no file left on the runner has a token or, with http storage, the password. The data folder
// must be private or have the mode 0755.
func noSecretsOnDisk(t *testing.T, data, storage string) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the agent removed it meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.Contains(string(b), "flj_") || strings.Contains(string(b), "fll_") {
			t.Errorf("%s has a token", path)
		}
		if storage == "http" && strings.Contains(string(b), password) {
			t.Errorf("%s has the password", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(data); err == nil && st.Mode().Perm()&0o077 != 0 && st.Mode().Perm() != 0o755 {
		t.Errorf("the data folder has mode %v", st.Mode())
	}
}
