package runnerstack_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
)

// accountsKeyPolicy is a key policy by which the account's own policies decide.
var accountsKeyPolicy = map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "kms:*", "Resource": "*",
	"Principal": map[string]any{"AWS": "arn:aws:iam::111122223333:root"}}}}

// An administrator's function, machine, cluster or pipeline is in the same account, and so is
// others' data. Neither an operation nor a role of the app may use them, even if its
// own policies allow everything: an administrator's function would be a takeover of the
// account. The same actions are allowed on what the install made.
func TestOthersResourcesAreOutOfReach(t *testing.T) {
	s := stack(t, "PlansReadData", "Yes")
	boundary := s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	arn := func(service, resource string) string {
		return "arn:aws:" + service + ":eu-central-1:111122223333:" + resource
	}
	machine := arn("ec2", "instance/i-0123456789abcdef0")
	const never = "" // no resource of this type can be the install's
	rows := []struct {
		action, resource string
		own              string // a resource that the install made; never: the action is denied everywhere
		what             string
	}{
		{"lambda:UpdateFunctionCode", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function runs other code"},
		{"lambda:UpdateFunctionConfiguration", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function loads a layer"},
		{"lambda:InvokeFunction", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function is called"},
		{"lambda:AddPermission", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function is opened"},
		{"lambda:TagResource", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function gets the install's tag"},
		{"ssm:SendCommand", machine, machine, "a command runs on another's machine"},
		{"ssm:StartSession", machine, machine, "a shell is opened on another's machine"},
		{"ec2:ModifyInstanceAttribute", machine, machine, "another's machine boots another script"},
		{"ec2:AssociateIamInstanceProfile", machine, machine, "another's machine gets a role"},
		{"ec2:TerminateInstances", machine, machine, "another's machine is removed"},
		{"ec2:CreateTags", machine, machine, "another's machine gets the install's tag"},
		{"ec2:CreateLaunchTemplateVersion", arn("ec2", "launch-template/lt-0123456789abcdef0"), arn("ec2", "launch-template/lt-0123456789abcdef0"), "the next machine of another's group boots another script under its role"},
		{"ec2:CreateSnapshot", arn("ec2", "volume/vol-0123456789abcdef0"), arn("ec2", "volume/vol-0123456789abcdef0"), "another's volume is copied"},
		{"ec2:AttachVolume", arn("ec2", "volume/vol-0123456789abcdef0"), arn("ec2", "volume/vol-0123456789abcdef0"), "another's volume is read"},
		{"eks:CreateAccessEntry", arn("eks", "cluster/others"), arn("eks", "cluster/app"), "a role of the app becomes an administrator of another's cluster"},
		{"eks:AssociateAccessPolicy", arn("eks", "access-entry/others/role/111122223333/x/1"), arn("eks", "access-entry/app/role/111122223333/x/1"), "an entry of another's cluster gets permissions"},
		{"eks:CreatePodIdentityAssociation", arn("eks", "cluster/others"), arn("eks", "cluster/app"), "a pod of another's cluster gets a role"},
		{"ecs:ExecuteCommand", arn("ecs", "task/others/0123456789abcdef0"), arn("ecs", "task/app/0123456789abcdef0"), "a shell is opened in another's container"},
		{"ecs:UpdateService", arn("ecs", "service/others/web"), arn("ecs", "service/app/web"), "another's service runs another image"},
		{"ecs:RunTask", arn("ecs", "task-definition/others:1"), arn("ecs", "task-definition/app:1"), "another's task runs with other arguments"},
		{"states:UpdateStateMachine", arn("states", "stateMachine:others"), arn("states", "stateMachine:app"), "another's state machine does something else under its role"},
		{"states:StartExecution", arn("states", "stateMachine:others"), arn("states", "stateMachine:app"), "another's state machine is started"},
		{"rds:DeleteDBCluster", arn("rds", "cluster:others"), arn("rds", "cluster:app"), "another's database is removed"},
		{"rds:ModifyDBInstance", arn("rds", "db:others"), arn("rds", "db:app"), "another's database gets a password"},
		{"rds:CreateDBSnapshot", arn("rds", "db:others"), arn("rds", "db:app"), "another's database is copied"},
		{"rds:RestoreDBInstanceFromDBSnapshot", arn("rds", "snapshot:others"), arn("rds", "snapshot:app"), "the copy of another's database is read"},
		{"rds:ModifyDBSnapshotAttribute", arn("rds", "snapshot:others"), arn("rds", "snapshot:app"), "the copy of another's database is shared"},
		{"rds:AddTagsToResource", arn("rds", "db:others"), arn("rds", "db:app"), "another's database gets the install's tag"},
		{"secretsmanager:GetSecretValue", arn("secretsmanager", "secret:others-AbCdEf"), arn("secretsmanager", "secret:app-AbCdEf"), "another's secret is read"},
		{"secretsmanager:PutResourcePolicy", arn("secretsmanager", "secret:others-AbCdEf"), arn("secretsmanager", "secret:app-AbCdEf"), "another's secret is opened"},
		{"secretsmanager:TagResource", arn("secretsmanager", "secret:others-AbCdEf"), arn("secretsmanager", "secret:app-AbCdEf"), "another's secret gets the install's tag"},
		{"ssm:GetParameter", arn("ssm", "parameter/others"), arn("ssm", "parameter/app"), "another's parameter is read"},
		{"ssm:PutParameter", arn("ssm", "parameter/others"), arn("ssm", "parameter/app"), "another's parameter is overwritten"},
		{"dynamodb:Scan", arn("dynamodb", "table/others"), arn("dynamodb", "table/app"), "another's table is read"},
		{"dynamodb:DeleteTable", arn("dynamodb", "table/others"), arn("dynamodb", "table/app"), "another's table is removed"},
		{"sqs:ReceiveMessage", arn("sqs", "others"), arn("sqs", "app"), "another's queue is read"},
		{"sqs:SetQueueAttributes", arn("sqs", "others"), arn("sqs", "app"), "another's queue is opened"},
		{"ecr:PutImage", arn("ecr", "repository/others"), arn("ecr", "repository/app"), "another's image is replaced"},
		{"ecr:SetRepositoryPolicy", arn("ecr", "repository/others"), arn("ecr", "repository/app"), "another's images are opened"},
		{"kms:PutKeyPolicy", arn("kms", "key/others"), arn("kms", "key/app"), "another's key is opened"},
		{"kms:ScheduleKeyDeletion", arn("kms", "key/others"), arn("kms", "key/app"), "another's data cannot be decrypted any more"},
		{"logs:PutSubscriptionFilter", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log is copied elsewhere"},
		{"logs:GetLogEvents", arn("logs", "log-group:others:log-stream:web"), never, "another's log is read, stream by stream: streams have no tags"},
		{"logs:GetLogEvents", arn("logs", "log-group:/fairlead/"+install+"/runner:log-stream:step/step/1"), never, "the output of the jobs' steps is read"},
		{"logs:CreateExportTask", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log is copied to a bucket"},
		{"logs:PutAccountPolicy", "*", never, "each log of the account is copied elsewhere"},
		{"ssm:CreateAssociation", arn("ssm", "document/AWS-RunShellScript"), never, "commands run on each machine with a tag"},
		{"ssm:StartAutomationExecution", arn("ssm", "automation-definition/AWS-UpdateLinuxAmi:1"), never, "an automation uses another's role"},
		{"ssm:RegisterTaskWithMaintenanceWindow", arn("ssm", "maintenancewindow/mw-0123456789abcdef0"), never, "commands run at another's maintenance window"},
		{"cloudformation:UpdateStack", arn("cloudformation", "stack/others/1"), never, "another's stack changes under its own role"},
		{"codebuild:StartBuild", arn("codebuild", "project/others"), never, "another's build runs other commands"},
	}
	all := []map[string]any{policyOf("*")}
	app := "arn:aws:iam::111122223333:role/fairlead-app/" + install + "/web"
	var questions []infratest.Question
	var want []bool
	var what []string
	ask := func(q infratest.Question, allowed bool, why string) {
		q.Account, q.Boundary = infratest.Account, boundary
		if strings.HasPrefix(q.Action, "kms:") {
			q.ResourceP = accountsKeyPolicy
		}
		questions, want, what = append(questions, q), append(want, allowed), append(what, why)
	}
	foreign := map[string]map[string]any{"no tag": nil, "another install's tag": {"aws:ResourceTag/fairlead_install": "ins_01hzy3v5k8d9m0q2r4t6w8x0z2"}}
	for _, r := range rows {
		for tag, context := range foreign {
			for _, role := range []string{"ProvisionRole", "DeployRole", "DeprovisionRole", "ReadOnlyRole"} {
				ask(infratest.Question{Principal: s.ARN(role), Action: r.action, Resource: r.resource, Context: context, Identity: append(s.Policies(role), managed(t, s, role)...)}, false, role+", "+tag+": "+r.what)
			}
			// The request's own tags do not help: they are not the resource's.
			asks := merge(context, map[string]any{"aws:RequestTag/fairlead_install": install})
			if r.action == "ssm:PutParameter" { // an overwrite has no tags
				asks = context
			}
			ask(infratest.Question{Principal: app, Action: r.action, Resource: r.resource, Context: asks, Identity: all}, false, "a role of the app, "+tag+": "+r.what)
		}
		if r.own != never {
			ask(infratest.Question{Principal: app, Action: r.action, Resource: r.own, Context: map[string]any{"aws:ResourceTag/fairlead_install": install}, Identity: all}, true,
				"a role of the app uses "+r.action+" on what the install made")
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if allowed != want[i] {
			t.Errorf("%s (%s on %s): %t, want %t", what[i], questions[i].Action, questions[i].Resource, allowed, want[i])
		}
	}
	t.Logf("%d questions", len(questions))
}
