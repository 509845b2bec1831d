package agent

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
)

func TestEveryOperationHasItsRole(t *testing.T) {
	s := &config.RunnerStack{Install: "ins_1", ExternalID: "external", RoleProvision: "provision", RoleDeploy: "deploy", RoleDeprovision: "deprovision",
		RoleReadOnly:      "read-only",
		StepRoleProvision: "step of provision", StepRoleDeploy: "step of deploy", StepRoleDeprovision: "step of deprovision", StepRoleReadOnly: "step of read-only"}
	for name, tt := range map[string]struct {
		plugin, operation, want string
		err                     bool
	}{
		"a plan only reads":                   {"terraform", "plan", "read-only", false},
		"a plan-destroy only reads":           {"terraform", "plan-destroy", "read-only", false},
		"an apply of terraform provisions":    {"terraform", "apply", "provision", false},
		"an apply of a script deploys":        {"script", "apply", "deploy", false},
		"a plan of a script only reads":       {"script", "plan", "read-only", false},
		"an unknown plugin is refused":        {"tape", "apply", "", true},
		"a migration of a state deploys":      {"terraform", "migrate-state", "deploy", false},
		"a destroy deprovisions":              {"terraform", "destroy", "deprovision", false},
		"a check of the runner needs no role": {"check", "check", "", false},
		"an unknown operation is refused":     {"terraform", "import", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r, identity, err := operationRole(s, "eu-central-1", wire.Claim{Plugin: tt.plugin, Operation: tt.operation})
			if (err != nil) != tt.err || (r != nil) != (tt.want != "") {
				t.Fatalf("got %+v, %v", r, err)
			}
			if r != nil && (r.ARN != tt.want || r.ExternalID != "external" || r.Region != "eu-central-1" || r.Install != "ins_1") {
				t.Errorf("got role %+v, want %s", r, tt.want)
			}
			if r != nil && identity != "step of "+tt.want || r == nil && identity != "" {
				t.Errorf("the task of the step gets the identity %q, but its operation has the role %q", identity, tt.want)
			}
		})
	}
	if r, _, err := operationRole(nil, "", wire.Claim{Plugin: "terraform", Operation: "apply"}); r != nil || err != nil {
		t.Errorf("a runner without a stack got role %+v and error %v, want neither", r, err)
	}
}

// A run of an action and an apply of a component have the role that the app declares, but never the one that deletes. Other
// operations keep their own.
func TestRunAndApplyHaveTheDeclaredRole(t *testing.T) {
	s := &config.RunnerStack{RoleProvision: "provision", RoleDeploy: "deploy", RoleDeprovision: "deprovision", RoleReadOnly: "read-only"}
	for name, tt := range map[string]struct {
		claim wire.Claim
		want  string // "": refused
	}{
		"a run deploys":                            {wire.Claim{Plugin: "script", Operation: "run"}, "deploy"},
		"a run that declares a role":               {wire.Claim{Plugin: "script", Operation: "run", Role: "provision"}, "provision"},
		"a run that only reads":                    {wire.Claim{Plugin: "script", Operation: "run", Role: "read-only"}, "read-only"},
		"a run that wants to delete is refused":    {wire.Claim{Plugin: "script", Operation: "run", Role: "deprovision"}, ""},
		"a run of a module is refused":             {wire.Claim{Plugin: "terraform", Operation: "run"}, ""},
		"a plan of a run only reads":               {wire.Claim{Plugin: "script", Operation: "plan-run", Role: "provision"}, "read-only"},
		"an apply that declares a role":            {wire.Claim{Plugin: "script", Operation: "apply", Role: "provision"}, "provision"},
		"an apply that wants to delete is refused": {wire.Claim{Plugin: "script", Operation: "apply", Role: "deprovision"}, ""},
		"a destroy deletes, whatever it declares":  {wire.Claim{Plugin: "script", Operation: "destroy", Role: "provision"}, "deprovision"},
	} {
		r, _, err := operationRole(s, "eu-central-1", tt.claim)
		if (err != nil) != (tt.want == "") || r != nil && r.ARN != tt.want {
			t.Errorf("%s: the role is %+v, %v", name, r, err)
		}
	}
}

func TestTokenOfATaskIsBound(t *testing.T) {
	const token, role = "fll_job_1.1.0.c2lnbmF0dXJl", "arn:aws:iam::111122223333:role/step"
	for consequence, tt := range map[string]struct {
		identity string
		bindable bool
		want     string
	}{
		"a task with a role gets a bound token":        {role, true, role},
		"an older control plane cannot read one":       {role, false, ""},
		"a step without a role of its own proves none": {"", true, ""},
	} {
		got := boundToken(token, tt.identity, tt.bindable)
		if bound.Role(got) != tt.want || (tt.want == "") != (got == token) {
			t.Errorf("%s: %q", consequence, got)
		}
	}
}
