package agent

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
)

func TestRoleOfAnOperation(t *testing.T) {
	s := &config.RunnerStack{Install: "ins_1", ExternalID: "external", RoleProvision: "provision", RoleDeploy: "deploy", RoleDeprovision: "deprovision",
		RoleReadOnly: "read-only", RoleBreakGlass: "break-glass"}
	for name, tt := range map[string]struct {
		plugin, operation, want string
		err                     bool
	}{
		"a plan reads":                        {"terraform", "plan", "read-only", false},
		"a plan of a removal reads":           {"terraform", "plan-destroy", "read-only", false},
		"a module makes infrastructure":       {"terraform", "apply", "provision", false},
		"a script cannot remove a database":   {"script", "apply", "deploy", false},
		"a script's plan reads":               {"script", "plan", "read-only", false},
		"a plugin nobody has heard of":        {"image", "apply", "", true},
		"a state is moved by who deploys":     {"terraform", "migrate-state", "deploy", false},
		"a removal makes no roles":            {"terraform", "destroy", "deprovision", false},
		"a check of the runner needs no role": {"check", "check", "", false},
		"an operation nobody has heard of":    {"terraform", "import", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := operationRole(s, "eu-central-1", wire.Claim{Plugin: tt.plugin, Operation: tt.operation})
			if (err != nil) != tt.err || (r != nil) != (tt.want != "") {
				t.Fatalf("got %+v, %v", r, err)
			}
			if r != nil && (r.ARN != tt.want || r.ExternalID != "external" || r.Region != "eu-central-1" || r.Install != "ins_1") {
				t.Errorf("got %+v", r)
			}
		})
	}
	if r, err := operationRole(nil, "", wire.Claim{Plugin: "terraform", Operation: "apply"}); r != nil || err != nil {
		t.Errorf("a runner without a stack: %+v, %v", r, err)
	}
}
