package component_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/job"
)

// A deployment asks each of its components for these, whatever its type.
func TestEachTypeIsPlannedAppliedAndDestroyed(t *testing.T) {
	seen := map[string]bool{}
	for _, typ := range component.Types() {
		if typ.Name == "" || typ.Doc == "" || seen[typ.Name] {
			t.Errorf("%q, %q: a type has a name of its own and a sentence", typ.Name, typ.Doc)
		}
		seen[typ.Name] = true
		for _, op := range []job.Operation{job.OpPlan, job.OpApply, job.OpPlanDestroy, job.OpDestroy} {
			role, ok := typ.Role(op)
			if !ok || op.Plans() != (role == component.ReadOnly) {
				t.Errorf("%s: %s is done with the role %q (%v)", typ.Name, op, role, ok)
			}
		}
		if _, moves := typ.Role(job.OpMigrateState); moves != (typ.StateFile != "") {
			t.Errorf("%s: a state is what can be moved", typ.Name)
		}
	}
}

// Records from before there was a second type have none; and a job of a plugin that is
// not known must not get the state or the role of one that is.
func TestATypeThatIsNotThere(t *testing.T) {
	if old, ok := component.Of(""); !ok || old.Name != component.Terraform {
		t.Errorf("without a name it is %q", old.Name)
	}
	none, ok := component.Of("helm")
	if _, applies := none.Role(job.OpApply); ok || applies || none.StateFile != "" || none.Module || !none.Blind {
		t.Errorf("an unknown type is %+v", none)
	}
}

func TestReservedVariables(t *testing.T) {
	for name, want := range map[string]bool{"TF_LOG": true, "TF_VAR_size": true, "TF_CLI_ARGS_plan": true, "TF_LOGS": false, "tf_log": false, "AWS_REGION": false, "": false} {
		if got := component.Reserved(name); got != want {
			t.Errorf("%q is reserved: %v", name, got)
		}
	}
}

func TestWhereAStateIs(t *testing.T) {
	typ, _ := component.Of(component.Terraform)
	if got := typ.StatePath("ins_1", "web"); got != "state/ins_1/web/terraform.tfstate" {
		t.Error(got)
	}
}
