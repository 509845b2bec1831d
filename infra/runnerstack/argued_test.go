package runnerstack_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/infra/runnerstack"
)

// cdk-nag cannot read a statement whose actions are a parameter, and its suppressions name
// statements. So each action that a role or the boundary allows with a wildcard has a reason
// here, and no reason stays without its action.
func TestEachWildcardActionIsArgued(t *testing.T) {
	template := synth(t).template
	reasons := runnerstack.DefaultActions()
	for action := range strings.SplitSeq(defaultActions(t, template), ",") {
		if reasons[action] == "" {
			t.Errorf("the default action %s has no reason", action)
		}
		delete(reasons, action)
	}
	for action := range reasons {
		t.Errorf("%s is no default action any more", action)
	}

	s := stack(t, "PlansReadData", "Yes")
	argued := runnerstack.ArguedActions()
	left := map[string]bool{}
	for sid, actions := range argued {
		for action := range actions {
			left[sid+" "+action] = true
		}
	}
	documents := []any{s.Resources["Boundary"].Properties["PolicyDocument"]}
	for _, role := range operationRoles {
		for _, p := range s.Policies(role) {
			documents = append(documents, p)
		}
	}
	checked := 0
	for _, d := range documents {
		for _, st := range infratest.Statements(d) {
			sid := fmt.Sprint(st["Sid"])
			if st["Effect"] != "Allow" || sid == "App" || sid == "Services" {
				continue
			}
			actions, ok := st["Action"].([]any)
			if !ok {
				actions = []any{st["Action"]}
			}
			for _, action := range actions {
				key := sid + " " + fmt.Sprint(action)
				delete(left, key)
				if strings.Contains(fmt.Sprint(actions, st["Resource"]), "*") {
					checked++
					if argued[sid][fmt.Sprint(action)] == "" {
						t.Errorf("the action %s of statement %s has no reason", action, sid)
					}
				}
			}
		}
	}
	for key := range left {
		t.Errorf("no statement has %q any more", key)
	}
	if checked < 60 {
		t.Errorf("%d actions were checked", checked)
	}
}
