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

// AWS Backup accepts a plan for a table that the account's settings do not let it copy, and then each copy fails. So a
// deployment with a spare Region reads the settings of both Regions before anything is created.
func TestBackupSettingsAreCheckedFirst(t *testing.T) {
	const remedy = "aws backup update-region-settings --region "
	for _, row := range []struct {
		what    string
		account account
		spare   string
		stops   bool
		prints  []string
		not     string
	}{
		{"both settings are on in both regions", account{}, spareIn, false, nil, remedy},
		{"not opted in here", account{backups: map[string][]string{"eu-central-1": {"opt-in"}}}, spareIn, true, []string{"in eu-central-1 it is not opted in", remedy + "eu-central-1 "}, remedy + spareIn},
		{"not managed there", account{backups: map[string][]string{spareIn: {"management"}}}, spareIn, true, []string{"in eu-west-1 its advanced features are off", remedy + "eu-west-1 "}, remedy + "eu-central-1"},
		{"nothing is on anywhere", account{backups: map[string][]string{"eu-central-1": {"opt-in", "management"}, spareIn: {"opt-in", "management"}}}, spareIn, true,
			[]string{"in eu-central-1 it is not opted in, and its advanced features are off; in eu-west-1 it is", remedy + "eu-central-1 ", remedy + "eu-west-1 "}, ""},
		{"a caller who may not ask gets a warning for each region", account{silent: true}, spareIn, false,
			[]string{"does not answer in region eu-central-1", "does not answer in region eu-west-1", "AccessDeniedException"}, remedy},
		{"without a spare region no one asks", account{backups: map[string][]string{"eu-central-1": {"opt-in"}}}, "", false, nil, remedy},
	} {
		for _, dry := range []bool{true, false} {
			a := &row.account
			a.status, a.did, a.settings, a.synths = "", nil, nil, nil
			d, out := a.deployment(t)
			d.DryRun, d.SpareRegion = dry, row.spare
			err := d.Do(t.Context())
			text := out.String()
			if err != nil {
				text += err.Error()
			}
			if (err != nil) != row.stops || row.not != "" && strings.Contains(text, row.not) {
				t.Errorf("%s (dry run %t): error %v, output:\n%s", row.what, dry, err, out)
			}
			for _, want := range row.prints {
				if !strings.Contains(text, want) {
					t.Errorf("%s (dry run %t): the output lacks %q:\n%s", row.what, dry, want, text)
				}
			}
			if row.stops && len(a.did)+len(a.synths) > 0 {
				t.Errorf("%s: the deployment did %q before it stopped", row.what, a.did)
			}
			if row.spare == "" && len(a.settings) > 0 {
				t.Errorf("%s: the settings of %q were read", row.what, a.settings)
			}
		}
	}
}
