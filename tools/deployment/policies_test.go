package deployment_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/deployment"
)

// A service control policy binds also the role that CloudFormation acts with. In the past only a refused call of a
// half-created stack showed it. The preflight names each forbidden action before anything is built or created.
func TestForbiddenActionsStopADeployment(t *testing.T) {
	for _, row := range []struct {
		what    string
		account account
		stops   bool
		prints  string
	}{
		{"an account without an organization is not refused for its caller's policies", account{}, false, ""},
		{"an organization that permits everything", account{forbids: []string{}}, false, ""},
		{"the first and the last page are read", account{forbids: []string{"apigateway:POST", "ssm:PutParameter"}}, true, "eu-central-1: apigateway:POST, ssm:PutParameter"},
		{"a role's session is simulated as its role, with the path", account{role: true, forbids: []string{"kms:CreateKey"}}, true, "kms:CreateKey"},
		{"an action of a part that was not asked for is no reason", account{forbids: []string{"ecs:CreateService", "route53:ChangeResourceRecordSets"}}, false, ""},
		{"a caller who may not ask gets a warning", account{mute: true, forbids: []string{"kms:CreateKey"}}, false, "Warning: IAM does not answer"},
	} {
		for _, dry := range []bool{true, false} {
			a := &row.account
			a.status, a.did, a.simulated = "", nil, nil
			d, out := a.deployment(t)
			d.DryRun = dry
			err := d.Do(t.Context())
			text := out.String()
			if err != nil {
				text += err.Error()
			}
			if (err != nil) != row.stops || !strings.Contains(text, row.prints) || row.prints == "" && strings.Contains(text, "organization") {
				t.Errorf("%s (dry run %t): error %v, output:\n%s", row.what, dry, err, out)
			}
			if !dry && row.stops {
				d.IgnorePolicies = true
				if err := d.Do(t.Context()); err != nil || !strings.Contains(out.String(), "Warning: by IAM's simulation") {
					t.Errorf("%s: an operator who knows better is refused: %v, output:\n%s", row.what, err, out)
				}
				continue
			}
			if row.stops && len(a.did)+len(a.synths) > 0 {
				t.Errorf("%s: the deployment did %q before it stopped", row.what, a.did)
			}
		}
	}
}

func TestPreflightAsksForEachResource(t *testing.T) {
	for file, needs := range map[string]map[string]string{"control": deployment.Needs(), "spare": deployment.SpareNeeds()} {
		text, err := os.ReadFile("../../infra/control/testdata/" + file + ".template.json")
		if err != nil {
			t.Fatal(err)
		}
		var template struct {
			Resources map[string]struct{ Type string }
		}
		if err := json.Unmarshal(text, &template); err != nil {
			t.Fatal(err)
		}
		var types []string
		for id, r := range template.Resources {
			types = append(types, r.Type)
			if needs[r.Type] == "" {
				t.Errorf("%s: the preflight does not know which action creates %s (%s)", file, id, r.Type)
			}
		}
		for kind := range needs {
			if !slices.Contains(types, kind) {
				t.Errorf("%s: the preflight asks for %s, which the stack does not have", file, kind)
			}
		}
	}
}
