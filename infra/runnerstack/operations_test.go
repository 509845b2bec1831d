package runnerstack_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/config"
)

// An operation with a list of its own uses nothing else, and the runner reports the list. The
// others, and the app's own roles, keep AppActions.
func TestOperationHasOnlyItsActions(t *testing.T) {
	var given []string
	for _, operation := range awsaction.Operations() {
		if operation != awsaction.Provision {
			given = append(given, wire.StackOperationActions(operation), "lambda:*,logs:Get*")
		}
	}
	s := stack(t, append(given, wire.StackAppActions, "lambda:*,logs:Get*,sqs:*")...)
	boundary := s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	app := "arn:aws:iam::111122223333:role/fairlead-app/" + install + "/web"
	var questions []infratest.Question
	var want []bool
	for _, row := range []struct {
		role    string
		actions map[string]bool
	}{
		{"ProvisionRole", map[string]bool{"lambda:GetFunction": true, "sqs:DeleteQueue": true, "rds:DescribeDBInstances": false}},
		{"DeployRole", map[string]bool{"lambda:GetFunction": true, "sqs:DeleteQueue": false, "rds:DescribeDBInstances": false}},
		{"DeprovisionRole", map[string]bool{"lambda:GetFunction": true, "sqs:DeleteQueue": false, "rds:DescribeDBInstances": false}},
		{app, map[string]bool{"lambda:GetFunction": true, "sqs:DeleteQueue": true, "rds:DescribeDBInstances": false}},
	} {
		resources := map[string]string{"lambda:GetFunction": "function:web", "sqs:DeleteQueue": "app", "rds:DescribeDBInstances": "db:app"}
		for action, allowed := range row.actions {
			service := action[:3]
			if service == "lam" {
				service = "lambda"
			}
			q := infratest.Question{Principal: row.role, Action: action, Resource: "arn:aws:" + service + ":eu-central-1:111122223333:" + resources[action], Account: infratest.Account,
				Context: map[string]any{"aws:ResourceTag/fairlead_install": install}, Identity: []map[string]any{policyOf("*")}, Boundary: boundary}
			if row.role != app {
				q.Principal, q.Identity = s.ARN(row.role), s.Policies(row.role)
			}
			questions, want = append(questions, q), append(want, allowed)
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if q := questions[i]; allowed != want[i] {
			t.Errorf("%s may %s: %t, want %t", q.Principal, q.Action, allowed, want[i])
		}
	}
	reported := func(s infratest.Stack) map[string][]string {
		return (&config.RunnerStack{OperationActions: infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_OPERATION_ACTIONS"]}).ActionsByOperation()
	}
	if own := []string{"lambda:*", "logs:Get*"}; !reflect.DeepEqual(reported(s), map[string][]string{awsaction.Deploy: own, awsaction.Deprovision: own}) {
		t.Errorf("the runner reports %v", reported(s))
	}
	if got := reported(stack(t)); got != nil {
		t.Errorf("without lists the runner reports %v", got)
	}
}

// The customer's console accepts an empty list, and refuses what AppActions refuses.
func TestOperationActionsLiftNoBoundary(t *testing.T) {
	template := synth(t).template
	values := []string{"", "lambda:*", "iam:*", "sts:AssumeRole", "*", "lambda"}
	for _, operation := range awsaction.Operations() {
		if got := fmt.Sprint(infratest.Accepts(t, template, wire.StackOperationActions(operation), values)); got != "[true true false false false false]" {
			t.Errorf("%s accepts %q: %s", operation, values, got)
		}
	}
}
