package component_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/job"
)

// A deployment uses these operations for components of every type.
func TestEveryTypeHasTheOperations(t *testing.T) {
	seen := map[string]bool{}
	for _, typ := range component.Types() {
		if typ.Name == "" || typ.Doc == "" || seen[typ.Name] {
			t.Errorf("%q, %q: want a unique name and a sentence", typ.Name, typ.Doc)
		}
		seen[typ.Name] = true
		for _, op := range []job.Operation{job.OpPlan, job.OpApply, job.OpPlanDestroy, job.OpDestroy} {
			role, ok := typ.Role(op)
			if !ok || op.Plans() != (role == component.ReadOnly) {
				t.Errorf("%s: operation %s has the role %q (exists: %v)", typ.Name, op, role, ok)
			}
		}
		if _, moves := typ.Role(job.OpMigrateState); moves != (typ.StateFile != "") {
			t.Errorf("%s: want migrate-state exactly if the type has a state file", typ.Name)
		}
	}
}

// Records that are older than the second type have no type. A job of an unknown plugin
// must not get the state or the role of a known type.
func TestUnknownTypeHasNoStateAndNoRole(t *testing.T) {
	if old, ok := component.Of(""); !ok || old.Name != component.Terraform {
		t.Errorf("the type without a name is %q", old.Name)
	}
	none, ok := component.Of("chart")
	if _, applies := none.Role(job.OpApply); ok || applies || none.StateFile != "" || none.Module || !none.Blind {
		t.Errorf("the unknown type is %+v", none)
	}
}

// A program that speaks the protocol is in the source or belongs to the runner. A plan that nothing saves could not be applied.
func TestEveryProtocolTypeHasOneProgramAndSavesPlans(t *testing.T) {
	for _, typ := range component.Types() {
		if typ.Protocol && ((typ.Executable == "") == (typ.Program == "") || typ.Blind || typ.Module) || !typ.Protocol && typ.Program != "" {
			t.Errorf("%s: want one program, and a plan that sees what exists: %+v", typ.Name, typ)
		}
		if want := !typ.Blind; typ.SavesPlans() != want {
			t.Errorf("%s: SavesPlans() = %v", typ.Name, typ.SavesPlans())
		}
	}
}

func TestReservedVariables(t *testing.T) {
	for name, want := range map[string]bool{"TF_LOG": true, "TF_VAR_size": true, "TF_CLI_ARGS_plan": true, "TF_LOGS": false, "tf_log": false, "AWS_REGION": false, "": false} {
		if got := component.Reserved(name); got != want {
			t.Errorf("Reserved(%q) = %v", name, got)
		}
	}
}

func TestStatePath(t *testing.T) {
	typ, _ := component.Of(component.Terraform)
	if got := typ.StatePath("ins_1", "web"); got != "state/ins_1/web/terraform.tfstate" {
		t.Errorf("the path is %s", got)
	}
}
