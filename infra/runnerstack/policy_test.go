package runnerstack_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// The customer's policy decides what the vendor's jobs may do, so no job may change it, and no module may change what the ledger has
// of other jobs. Only the step, which is the runner's own program, reads the policy and uses the ledger.
func TestOnlyStepsReadPolicyAndNoneWritesIt(t *testing.T) {
	s := stack(t, "Policy", "/acme/policy", "PlansReadData", "Yes", "AppActions", "*")
	none := stack(t)
	boundary := s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	const parameter, other = "arn:aws:ssm:eu-central-1:111122223333:parameter/acme/policy", "arn:aws:ssm:eu-central-1:111122223333:parameter/acme/other"
	bucket := "arn:aws:s3:::statebucket"
	entry := bucket + "/.led/admitted/dep_1/000001"
	var questions []infratest.Question
	var what []string
	var want []bool
	ask := func(of infratest.Stack, role, action, resource string, context map[string]any, allowed bool, why string) {
		q := infratest.Question{Principal: of.ARN(role), Action: action, Resource: resource, Account: infratest.Account, Context: context,
			Identity: append(of.Policies(role), managed(t, of, role)...)}
		if slices.Contains(operationRoles, role) {
			q.Boundary = boundary
		}
		questions, what, want = append(questions, q), append(what, role+": "+why+" ("+action+" on "+resource+")"), append(want, allowed)
	}
	writes := []string{"ssm:PutParameter", "ssm:DeleteParameter", "ssm:LabelParameterVersion", "ssm:AddTagsToResource"}
	// A job can put the install's tag into its request, but not on the customer's parameter, which does not have it.
	tagged := map[string]any{"aws:RequestTag/fairlead_install": "ins_00000000000000000000000000"}
	for _, role := range stepRoles {
		ask(s, role, "ssm:GetParameter", parameter, nil, true, "a step reads the policy")
		ask(s, role, "ssm:GetParameter", other, nil, false, "a step reads another parameter")
		ask(s, role, "s3:PutObject", entry, nil, true, "a step adds to the ledger")
		ask(s, role, "s3:GetObject", entry, nil, true, "a step reads the ledger")
		ask(s, role, "s3:DeleteObject", entry, nil, true, "a step removes an old plan")
		ask(s, role, "s3:ListBucket", bucket, map[string]any{"s3:prefix": ".led/plans/"}, true, "a step lists the ledger")
		ask(s, role, "s3:ListBucket", bucket, map[string]any{"s3:prefix": "state/"}, false, "a step lists states")
		ask(s, role, "s3:GetObject", bucket+"/state/ins_1/web", nil, false, "a step reads a state itself")
		ask(none, role, "s3:PutObject", entry, nil, false, "a step has a ledger without a policy")
		for _, action := range writes {
			ask(s, role, action, parameter, tagged, false, "a step changes the policy")
		}
	}
	for _, role := range append([]string{"RunnerRole", "ExecutionRole"}, operationRoles...) {
		for _, action := range writes {
			ask(s, role, action, parameter, tagged, false, "the agent or a tool changes the policy")
		}
		for _, action := range []string{"s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:GetObject", "s3:PutObjectTagging"} {
			ask(s, role, action, entry, nil, false, "the agent or a tool reaches the ledger")
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if allowed != want[i] {
			t.Errorf("%s: %t, want %t", what[i], allowed, want[i])
		}
	}
}

// The agent's file names the policy of the parameter and a ledger that only steps reach, and is a valid file in both cases.
func TestPolicyIsInTheAgentsFile(t *testing.T) {
	for value, want := range map[string][2]string{"": {}, "/acme/policy": {"ssm:/acme/policy", "s3:statebucket/.led"}} {
		text := infratest.TaskEnvironment(t, stack(t, "Policy", value), "RunnerTask")["FAIRLEAD_AGENT_CONFIG"]
		var fields struct{ Policy, Ledger string }
		if err := json.Unmarshal([]byte(text), &fields); err != nil || fields.Policy != want[0] || fields.Ledger != want[1] {
			t.Errorf("Policy %q: %+v (%v)\n%s", value, fields, err, text)
		}
		if fields.Policy != "" {
			if _, err := runnerspec.ParsePolicy(fields.Policy); err != nil {
				t.Error(err)
			}
			if _, err := runnerspec.ParseLedger(fields.Ledger); err != nil {
				t.Error(err)
			}
		}
	}
}
