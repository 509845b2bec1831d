package runnerstack_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
)

// awsPolicies replace the managed policies that the template names. The replacement of
// ReadOnlyAccess also has the recorded policy: see managed.
var awsPolicies = map[string]map[string]any{
	// The recorded policy has only the services of the recorded modules. These actions allow at least what AWS's policy allows of others.
	"arn:aws:iam::aws:policy/ReadOnlyAccess": policyOf("lambda:Get*", "secretsmanager:*", "kms:*", "states:Describe*", "athena:Get*"),
	// The stack's own statements allow what a plan needs beyond this policy.
	"arn:aws:iam::aws:policy/job-function/ViewOnlyAccess": policyOf("ec2:Describe*"),
}

func policyOf(actions ...string) map[string]any {
	list := []any{}
	for _, a := range actions {
		list = append(list, a)
	}
	return map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": list, "Resource": "*"}}}
}

// managed returns the replacements of the managed policies of a role.
func managed(t *testing.T, s infratest.Stack, role string) (policies []map[string]any) {
	list, _ := s.Resources[role].Properties["ManagedPolicyArns"].([]any)
	for _, arn := range list {
		p, ok := awsPolicies[arn.(string)]
		if !ok {
			t.Fatalf("awsPolicies has no replacement for %v", arn)
		}
		if strings.HasSuffix(arn.(string), "/ReadOnlyAccess") { // a denial then comes from the stack, and not from a replacement that allows less
			policies = append(policies, policyOf(recordedReadOnlyAccess(t)...))
		}
		policies = append(policies, p)
	}
	return policies
}

// operationRoles are the roles of the operations. The steps of an operation have the role
// stepOf.
var operationRoles = []string{"ProvisionRole", "DeployRole", "DeprovisionRole", "ReadOnlyRole"}

func stepOf(role string) string { return strings.TrimSuffix(role, "Role") + "StepRole" }

// Each row is a permission in the customer's account that an operation needs, or an
// attack that must fail.
func TestWhoMayDoWhat(t *testing.T) {
	s, wide := stack(t), stack(t, "AppActions", "*")
	boundary := s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	bucket, key := s.ARN("StateBucket"), s.ARN("StateKey")
	own, app := "arn:aws:iam::111122223333:role/fairlead/"+install+"/", "arn:aws:iam::111122223333:role/fairlead-app/"+install+"/web"
	boundaryARN := "arn:aws:iam::111122223333:policy/fairlead/" + install + "/boundary-0"
	under := map[string]any{"iam:PermissionsBoundary": boundaryARN}
	mine := map[string]any{"aws:ResourceTag/fairlead_install": install}
	mode := "arn:aws:ssm:eu-central-1:111122223333:parameter/fairlead/" + install + "/mode"
	repository := "arn:aws:ecr:eu-central-1:111122223333:repository/fairlead/" + install + "/web"
	mirror := "arn:aws:ecr:eu-central-1:111122223333:repository/fairlead/mirror"
	made := map[string]any{"aws:ResourceTag/fairlead_install": install, "aws:RequestTag/fairlead_install": install}
	earlier := map[string]any{"iam:PermissionsBoundary": strings.TrimSuffix(boundaryARN, "0") + "of-a-deleted-stack"}
	ofECS := func(resource string) string { return "arn:aws:ecs:eu-central-1:111122223333:" + resource }
	cluster := "fairlead-" + install
	steps, task := ofECS("task-definition/"+cluster+"-step"), ofECS("task/"+cluster+"/1")
	inCluster, toTask := map[string]any{"ecs:cluster": s.ARN("Cluster")}, map[string]any{"iam:PassedToService": "ecs-tasks.amazonaws.com"}
	external := map[string]any{"sts:ExternalId": externalID}
	type row struct {
		role, action, resource string
		context                map[string]any
		allowed                bool
		what                   string
	}
	rows := []row{
		// A plan.
		{"ReadOnlyRole", "s3:GetObject", bucket + "/state/web.tfstate", nil, true, "a plan reads the state"},
		{"ReadOnlyRole", "s3:PutObject", bucket + "/state/web.tfstate.tflock", nil, true, "a plan locks the state"},
		{"ReadOnlyRole", "s3:DeleteObject", bucket + "/state/web.tfstate.tflock", nil, true, "a plan unlocks the state"},
		{"ReadOnlyRole", "s3:PutObject", bucket + "/plans/job_1", nil, true, "a plan is saved"},
		{"ReadOnlyRole", "kms:Decrypt", key, nil, true, "a plan opens the state"},
		{"ReadOnlyRole", "s3:GetObject", bucket + "/providers/registry.opentofu.org/hashicorp/aws/terraform-provider-aws_6.34.0_linux_arm64.zip", nil, true, "a plan takes a provider from the mirror"},
		{"ReadOnlyRole", "s3:PutObject", bucket + "/providers/registry.opentofu.org/hashicorp/aws/terraform-provider-aws_6.34.0_linux_arm64.zip", nil, true, "a plan stores a provider in the mirror"},
		{"ProvisionRole", "s3:PutObject", bucket + "/providers/x.zip", nil, true, "an apply stores a provider in the mirror"},
		{"DeployRole", "s3:GetObject", bucket + "/providers/x.zip", nil, true, "a deployment takes a provider from the mirror"},
		{"DeprovisionRole", "s3:GetObject", bucket + "/providers/x.zip", nil, true, "a teardown takes a provider from the mirror"},
		{"ReadOnlyRole", "s3:DeleteObject", bucket + "/providers/x.zip", nil, false, "a plan removes a provider from the mirror"},
		{"ReadOnlyRole", "s3:PutObject", bucket + "/other/x.zip", nil, false, "a plan stores something outside of the mirror"},
		{"ReadOnlyStepRole", "s3:PutObject", bucket + "/providers/x.zip", nil, false, "a step writes to the mirror without the role of its operation"},
		{"RunnerRole", "s3:PutObject", bucket + "/providers/x.zip", nil, false, "the agent writes to the mirror"},
		{"ReadOnlyRole", "ec2:DescribeInstances", "*", nil, true, "a plan reads infrastructure"},
		{"ReadOnlyRole", "s3:PutObject", bucket + "/state/web.tfstate", nil, false, "a plan writes the state"},
		{"ReadOnlyRole", "s3:DeleteObject", bucket + "/state/web.tfstate", nil, false, "a plan removes the state"},
		{"ReadOnlyRole", "s3:GetObject", "arn:aws:s3:::customers-data/x", nil, false, "a plan reads the customer's data"},
		{"ReadOnlyRole", "secretsmanager:GetSecretValue", "arn:aws:secretsmanager:eu-central-1:111122223333:secret:db-AbCdEf", nil, false, "a plan reads a secret"},
		{"ReadOnlyRole", "ssm:GetParameter", "arn:aws:ssm:eu-central-1:111122223333:parameter/db", nil, false, "a plan reads a parameter that may be a secret"},
		{"ReadOnlyRole", "dynamodb:Scan", "arn:aws:dynamodb:eu-central-1:111122223333:table/orders", nil, false, "a plan reads a table"},
		{"ReadOnlyRole", "kms:Decrypt", "arn:aws:kms:eu-central-1:111122223333:key/other", nil, false, "a plan decrypts something else"},
		{"ReadOnlyRole", "ec2:RunInstances", "arn:aws:ec2:eu-central-1:111122223333:instance/*", nil, false, "a plan makes a machine"},
		{"ReadOnlyRole", "iam:CreateRole", app, under, false, "a plan makes a role"},
		{"ReadOnlyRole", "lambda:InvokeFunction", "arn:aws:lambda:eu-central-1:111122223333:function:x", nil, false, "a plan runs code"},
		{"ReadOnlyRole", "ecs:DescribeTasks", ofECS("task/app/1"), nil, true, "a plan reads a task of the app"},
		{"ReadOnlyRole", "ecs:DescribeServices", ofECS("service/app/web"), nil, true, "a plan reads a service of the app"},
		{"ReadOnlyRole", "ecs:ListTasks", "*", map[string]any{"ecs:cluster": ofECS("cluster/app")}, true, "a plan lists the app's tasks"},
		// These actions know neither a resource nor a cluster. They return names, and no launch token.
		{"ReadOnlyRole", "ecs:ListClusters", "*", nil, true, "a plan lists the names of the clusters"},
		{"ReadOnlyRole", "ecs:ListTaskDefinitions", "*", nil, true, "a plan lists the names of the task definitions"},
		{"ReadOnlyRole", "ecs:DescribeTaskDefinition", "*", nil, true, "a plan reads a task definition: those of the runner have no secret"},

		// A deployment.
		{"DeployRole", "s3:PutObject", bucket + "/state/web.tfstate", nil, true, "a deployment writes the state"},
		{"DeployRole", "ecs:UpdateService", "arn:aws:ecs:eu-central-1:111122223333:service/app/web", mine, true, "a deployment updates the app"},
		{"DeployRole", "ecr:PutImage", s.ARN("Images"), mine, true, "an image is copied"},
		{"DeployRole", "ecr:CreateRepository", repository, made, true, "an apply makes the repository of a component"},
		{"DeployRole", "ecr:TagResource", repository, made, true, "the repository gets the install's tag"},
		{"DeployRole", "ecr:PutImage", repository, mine, true, "an image of a component is copied"},
		{"DeployRole", "ecr:BatchDeleteImage", repository, mine, true, "an earlier image is removed"},
		{"DeprovisionRole", "ecr:BatchDeleteImage", repository, mine, true, "removing the app removes its images"},
		{"DeprovisionRole", "ecr:ListImages", repository, mine, true, "removing the app finds its images"},
		{"ReadOnlyRole", "ecr:ListImages", repository, nil, true, "a plan finds what was copied"},
		{"ReadOnlyRole", "ecr:BatchGetImage", repository, nil, true, "a plan compares an image"},
		{"ReadOnlyRole", "ecr:PutImage", repository, mine, false, "a plan copies an image"},
		{"ReadOnlyRole", "ecr:BatchDeleteImage", repository, mine, false, "a plan removes an image"},
		{"ReadOnlyRole", "ecr:CreateRepository", repository, mine, false, "a plan makes a repository"},
		{"ReadOnlyRole", "ecr:BatchGetImage", mirror, nil, true, "a plan finds an image in the customer's mirror"},
		{"ReadOnlyRole", "ecr:GetDownloadUrlForLayer", mirror, nil, true, "a plan takes a provider from the customer's mirror"},
		{"ProvisionRole", "ecr:GetDownloadUrlForLayer", mirror, nil, true, "an apply takes a provider from the customer's mirror"},
		{"DeployRole", "ecr:GetDownloadUrlForLayer", mirror, nil, true, "an image is copied from the customer's mirror"},
		{"DeprovisionRole", "ecr:GetDownloadUrlForLayer", mirror, nil, true, "a destroy takes a provider from the customer's mirror"},
		{"DeployRole", "ecr:PutImage", mirror, nil, false, "an apply writes to the customer's mirror"},
		{"DeprovisionRole", "ecr:BatchDeleteImage", mirror, nil, false, "a destroy removes an image of the customer's mirror"},
		{"DeployRole", "rds:DeleteDBInstance", "arn:aws:rds:eu-central-1:111122223333:db:orders", mine, false, "a deployment removes a database"},
		{"DeployRole", "dynamodb:DeleteTable", "arn:aws:dynamodb:eu-central-1:111122223333:table/orders", mine, false, "a deployment removes a table"},
		{"DeployRole", "s3:DeleteBucket", "arn:aws:s3:::app-data", nil, false, "a deployment removes a bucket"},
		{"DeprovisionRole", "rds:DeleteDBInstance", "arn:aws:rds:eu-central-1:111122223333:db:orders", mine, true, "removing the app removes its database"},
		{"DeprovisionRole", "iam:DeleteRole", app, nil, true, "removing the app removes its roles"},
		{"DeprovisionRole", "iam:DetachRolePolicy", app, under, true, "removing the app takes permissions from its role"},
		{"DeprovisionRole", "iam:DetachRolePolicy", app, earlier, true, "an app of a deleted stack is removed"},
		{"DeprovisionRole", "iam:DeleteRolePolicy", app, map[string]any{"iam:PermissionsBoundary": "arn:aws:iam::aws:policy/AdministratorAccess"}, false, "a role without this boundary is changed"},
		{"ProvisionRole", "iam:DetachRolePolicy", app, earlier, true, "a permission of an app of a deleted stack is removed"},
		{"ProvisionRole", "iam:PutRolePermissionsBoundary", app, under, true, "a role of a deleted stack gets this stack's boundary"},
		{"ProvisionRole", "iam:AttachRolePolicy", app, earlier, false, "a role gets permissions under the boundary of a deleted stack"},
		{"ProvisionRole", "iam:CreatePolicy", "arn:aws:iam::111122223333:policy/fairlead/" + install + "/boundary-x", nil, false, "an operation makes a boundary of its own"},
		{"DeprovisionRole", "iam:CreateRole", app, under, false, "removing the app makes a role"},
		{"DeprovisionRole", "iam:PassRole", app, nil, false, "removing the app gives a role to something"},

		// Roles of the app.
		{"ProvisionRole", "iam:CreateRole", app, under, true, "the app's role is made under the boundary"},
		{"ProvisionRole", "iam:CreateRole", app, nil, false, "a role is made without a boundary"},
		{"ProvisionRole", "iam:CreateRole", app, map[string]any{"iam:PermissionsBoundary": "arn:aws:iam::aws:policy/AdministratorAccess"}, false, "a role is made under a boundary without limits"},
		{"ProvisionRole", "iam:CreateRole", "arn:aws:iam::111122223333:role/admin", under, false, "a role is made outside of the app's path"},
		{"ProvisionRole", "iam:AttachRolePolicy", "arn:aws:iam::111122223333:role/customers-own", under, false, "another's role is given permissions"},
		{"ProvisionRole", "iam:UpdateAssumeRolePolicy", "arn:aws:iam::111122223333:role/customers-own", nil, false, "another's role is opened"},
		{"ProvisionRole", "iam:PassRole", "arn:aws:iam::111122223333:role/customers-admin", nil, false, "an administrator's role is passed to a machine"},
		{"ProvisionRole", "iam:CreateUser", "arn:aws:iam::111122223333:user/x", nil, false, "a user with a password is left behind"},
		{"ProvisionRole", "iam:CreateAccessKey", "arn:aws:iam::111122223333:user/x", nil, false, "a key is left behind"},
		{"ProvisionRole", "sts:AssumeRole", own + "deprovisionrole", nil, false, "one operation takes the role of another"},
		{"ProvisionRole", "sts:AssumeRole", "arn:aws:iam::999999999999:role/vendor", nil, false, "an operation goes to another account"},
		{"ProvisionRole", "organizations:LeaveOrganization", "*", nil, false, "the account leaves its organization"},

		// The agent: it starts a task for each job, and can do nothing else.
		{"RunnerRole", "ecs:RunTask", steps + ":1", inCluster, true, "the agent starts a step"},
		{"RunnerRole", "ecs:RunTask", steps + ":1", map[string]any{"ecs:cluster": "arn:aws:ecs:eu-central-1:111122223333:cluster/payroll"}, false, "the agent starts a step in another cluster"},
		{"RunnerRole", "ecs:RunTask", "arn:aws:ecs:eu-central-1:111122223333:task-definition/payroll:1", inCluster, false, "the agent starts another's task"},
		{"RunnerRole", "ecs:RegisterTaskDefinition", steps + ":2", nil, false, "the agent chooses another image"},
		{"RunnerRole", "ecs:ExecuteCommand", task, inCluster, false, "the agent opens a shell in a step"},
		{"RunnerRole", "ecs:StopTask", task, inCluster, true, "the agent stops a step"},
		{"RunnerRole", "ecs:StopTask", "arn:aws:ecs:eu-central-1:111122223333:task/payroll/1", map[string]any{"ecs:cluster": "arn:aws:ecs:eu-central-1:111122223333:cluster/payroll"}, false, "the agent stops another's task"},
		{"RunnerRole", "ecs:DescribeTasks", task, inCluster, true, "the agent watches a step"},
		{"RunnerRole", "ecs:ListTasks", "*", inCluster, true, "the agent finds a step again"},
		{"RunnerRole", "ecs:TagResource", task, map[string]any{"ecs:CreateAction": "RunTask"}, true, "the agent tags a step"},
		{"RunnerRole", "ecs:TagResource", task, nil, false, "the agent changes tags later"},
		{"RunnerRole", "iam:PassRole", own + "provisionsteprole", toTask, true, "a step gets the role of its operation's steps"},
		{"RunnerRole", "iam:PassRole", own + "executionrole", toTask, true, "a step's container is started"},
		{"RunnerRole", "iam:PassRole", own + "provisionsteprole", map[string]any{"iam:PassedToService": "lambda.amazonaws.com"}, false, "a function gets the role of steps"},
		{"RunnerRole", "iam:PassRole", own + "provisionrole", toTask, false, "a task gets the role of an operation"},
		{"RunnerRole", "iam:PassRole", "arn:aws:iam::111122223333:role/customers-admin", toTask, false, "a task gets an administrator's role"},
		{"RunnerRole", "sts:AssumeRole", own + "deployrole", external, false, "the agent takes the role of an operation"},
		{"RunnerRole", "sts:AssumeRole", own + "readonlyrole", external, false, "the agent takes the role that plans"},
		{"RunnerRole", "sts:AssumeRole", own + "provisionsteprole", external, false, "the agent takes the role of steps"},
		{"RunnerRole", "sts:AssumeRole", "arn:aws:iam::111122223333:role/customers-admin", external, false, "the agent takes a role of the customer"},
		{"RunnerRole", "s3:GetObject", bucket + "/state/web.tfstate", nil, false, "the agent reads states"},
		{"RunnerRole", "ec2:RunInstances", "arn:aws:ec2:eu-central-1:111122223333:instance/*", nil, false, "the agent makes a machine itself"},

		// A step, in a task of its own: whatever its tool runs, it takes the role of its operation.
		{"ReadOnlyStepRole", "sts:AssumeRole", own + "readonlyrole", external, true, "the step of a plan takes its role"},
		{"ReadOnlyStepRole", "sts:AssumeRole", own + "provisionrole", external, false, "a plan that was not approved provisions"},
		{"ReadOnlyStepRole", "sts:AssumeRole", own + "deprovisionrole", external, false, "a plan removes the app"},
		{"ProvisionStepRole", "sts:AssumeRole", own + "provisionrole", external, true, "the step of an apply takes its role"},
		{"ProvisionStepRole", "sts:AssumeRole", own + "provisionrole", map[string]any{"sts:ExternalId": "another"}, false, "a step uses another install's external id"},
		{"ProvisionStepRole", "sts:AssumeRole", own + "deprovisionrole", external, false, "an apply takes the role of a teardown"},
		{"DeployStepRole", "sts:AssumeRole", own + "provisionrole", external, false, "a deployment takes the role that makes roles"},
		{"DeprovisionStepRole", "sts:AssumeRole", own + "provisionrole", external, false, "a teardown takes the role that makes roles"},
		{"ReadOnlyStepRole", "ecs:RunTask", steps + ":1", inCluster, false, "a step starts another step"},
		{"ReadOnlyStepRole", "iam:PassRole", own + "provisionsteprole", toTask, false, "a step passes another step's role"},
		{"ProvisionStepRole", "s3:GetObject", bucket + "/state/web.tfstate", nil, false, "a step reads states without the role of its operation"},

		// The customer's mode.
		{"RunnerRole", "ssm:GetParameter", mode, nil, true, "the runner reads the customer's mode"},
		{"RunnerRole", "ssm:PutParameter", mode, nil, false, "the runner enables itself"},
		{"DeployRole", "ssm:PutParameter", mode, nil, false, "a job enables a runner that the customer paused"},
		{"DeprovisionRole", "ssm:DeleteParameters", mode, nil, false, "a job removes the customer's mode"},
		{"RunnerRole", "ssm:GetParameter", "arn:aws:ssm:eu-central-1:111122223333:parameter/db", nil, false, "the runner reads a parameter that may be a secret"},
		{"ExecutionRole", "s3:GetObject", bucket + "/state/web.tfstate", nil, false, "the execution role reads states"},
		{"ExecutionRole", "ecr:PutImage", s.ARN("Images"), nil, false, "the execution role changes images"},
	}
	// No operation may use these actions, even if AppActions permits all actions.
	guardedFrom := len(rows)
	for _, role := range []string{"ProvisionRole", "DeployRole", "DeprovisionRole", "ReadOnlyRole"} {
		for _, guarded := range []struct{ action, resource, what string }{
			{"s3:DeleteBucket", bucket, "the state bucket is removed"},
			{"s3:PutBucketPolicy", bucket, "the state bucket is opened"},
			{"s3:PutBucketVersioning", bucket, "versions of states are no longer kept"},
			{"s3:PutLifecycleConfiguration", bucket, "states expire"},
			{"s3:PutEncryptionConfiguration", bucket, "states are encrypted under another's key"},
			{"s3:DeleteObjectVersion", bucket + "/state/web.tfstate", "an older state is gone for good"},
			{"kms:ScheduleKeyDeletion", key, "the states cannot be opened any more"},
			{"kms:PutKeyPolicy", key, "another can open the states"},
			{"kms:CreateGrant", key, "another principal gets a grant to open the states"},
			{"iam:DeleteRolePermissionsBoundary", own + strings.ToLower(role), "a role loses its boundary"},
			{"iam:PutRolePermissionsBoundary", own + strings.ToLower(role), "a role gets another boundary"},
			{"iam:CreatePolicyVersion", boundaryARN, "the boundary is rewritten"},
			{"iam:SetDefaultPolicyVersion", boundaryARN, "an older boundary is taken"},
			{"iam:PutRolePolicy", own + strings.ToLower(role), "a role gives itself permissions"},
			{"iam:UpdateAssumeRolePolicy", own + "deprovisionrole", "the role of another operation is opened"},
			{"iam:DeleteRolePermissionsBoundary", app, "a role of the app loses its boundary"},
			{"ecs:UpdateService", ofECS("service/" + cluster + "/runner"), "the runner is replaced"},
			{"ecs:DeleteCluster", s.ARN("Cluster"), "the runner is removed"},
			{"ecs:UpdateCluster", s.ARN("Cluster"), "the settings of the runner's cluster change"},
			{"ecs:ExecuteCommand", task, "a shell is opened in the runner"},
			{"ecs:DescribeTasks", task, "a tool reads the launch token of another job's task, which is in its overrides"},
			{"ecs:ListTasks", "*", "a tool finds the tasks of other jobs"},
			{"ecs:DescribeTaskSets", ofECS("task-set/" + cluster + "/runner/1"), "a tool reads a task set of the runner"},
			{"ecs:DescribeServices", ofECS("service/" + cluster + "/runner"), "a tool reads the runner's service"},
			{"ecs:DescribeServiceRevisions", ofECS("service-revision/" + cluster + "/runner/1"), "a tool reads a revision of the runner's service"},
			{"ecs:DescribeContainerInstances", ofECS("container-instance/" + cluster + "/1"), "a tool reads a machine of the runner's cluster"},
			{"ecs:RegisterContainerInstance", s.ARN("Cluster"), "a tool's machine takes the runner's tasks"},
			{"ecs:RegisterTaskDefinition", steps + ":2", "a tool registers a revision of the steps' task definition"},
			{"ecs:RegisterTaskDefinition", strings.TrimSuffix(steps, "-step") + ":2", "a tool registers a revision of the runner's task definition"},
			{"ecs:CreateService", ofECS("service/" + cluster + "/mine"), "a tool keeps a service of its own in the runner's cluster"},
			{"ecs:RunTask", steps + ":1", "a tool starts a step without a job"},
			{"ecs:StopTask", task, "a tool stops another job's task"},
			{"ecs:TagResource", task, "a tool makes its own task look like another attempt's"},
			{"iam:PassRole", own + "provisionsteprole", "a task of the tool gets the role of another operation's steps"},
			{"iam:PassRole", own + "executionrole", "a task of the tool reads the customer's secrets at its start"},
			{"ssm:DeleteParameter", mode, "the customer's mode is removed"},
			{"logs:PutSubscriptionFilter", strings.TrimSuffix(s.ARN("RunnerLog"), ":*"), "the runner's log is copied elsewhere"},
			{"logs:PutRetentionPolicy", strings.TrimSuffix(s.ARN("RunnerLog"), ":*"), "the runner's log expires after a day"},
			{"logs:DeleteLogGroup", strings.TrimSuffix(s.ARN("RunnerLog"), ":*"), "the runner's log is deleted"},
			{"cloudformation:UpdateStack", "arn:aws:cloudformation:eu-central-1:111122223333:stack/fairlead/0", "the stack itself is changed"},
			{"cloudformation:DeleteStack", "arn:aws:cloudformation:eu-central-1:111122223333:stack/fairlead/0", "the stack itself is removed"},
		} {
			context := under
			if guarded.action != "iam:PutRolePermissionsBoundary" && guarded.action != "iam:PutRolePolicy" && guarded.action != "iam:DeleteRolePermissionsBoundary" {
				context = nil
			}
			if strings.HasPrefix(guarded.action, "ecs:") {
				context = inCluster
			}
			rows = append(rows, row{role, guarded.action, guarded.resource, context, false, guarded.what})
		}
		rows = append(rows, []row{
			{role, "ecs:DescribeTasks", task, nil, false, "a tool reads the launch token, and the request does not show the cluster to IAM"},
			{role, "ecs:RunTask", ofECS("task-definition/app:1"), merge(inCluster, mine), false, "a tool runs a task of its own in the runner's cluster, as another attempt's"},
			{role, "ecs:TagResource", task, map[string]any{"ecs:CreateAction": "RunTask"}, false, "a tool starts a task with the tags of another attempt's"},
		}...)
	}
	var questions []infratest.Question
	for i, r := range rows {
		policies := s.Policies(r.role)
		if i >= guardedFrom {
			policies = wide.Policies(r.role)
		}
		q := infratest.Question{Principal: s.ARN(r.role), Action: r.action, Resource: r.resource, Account: infratest.Account, Context: r.context,
			Identity: append(policies, managed(t, s, r.role)...)}
		if s.Resources[r.role].Properties["PermissionsBoundary"] != nil {
			q.Boundary = boundary
		}
		questions = append(questions, q)
	}
	// A role that the app made, with all permissions of AWS, under the boundary.
	stolen := []row{
		{"", "s3:GetObject", bucket + "/state/web.tfstate", nil, false, "the app itself reads the state"},
		{"", "kms:Decrypt", key, nil, false, "the app itself opens the state"},
		{"", "iam:PutRolePolicy", own + "deployrole", under, false, "the app itself widens an operation"},
		{"", "sts:AssumeRole", own + "deployrole", nil, false, "the app itself assumes an operation's role"},
		{"", "s3:PutObject", bucket + "/providers/x.zip", nil, false, "the app itself writes to the mirror"},
		{"", "ssm:PutParameter", mode, nil, false, "the app itself enables a runner that the customer paused"},
		{"", "ecs:RunTask", steps + ":1", inCluster, false, "the app itself starts a step"},
		{"", "ecs:DescribeTasks", task, inCluster, false, "the app itself reads the launch token of a job's task"},
		{"", "ecs:RunTask", ofECS("task-definition/app:1"), merge(inCluster, mine), false, "the app itself runs a task in the runner's cluster"},
		{"", "ecs:RunTask", ofECS("task-definition/app:1"), merge(mine, map[string]any{"ecs:cluster": ofECS("cluster/app")}), true, "the app runs a task of its own"},
		{"", "ecs:DescribeTasks", ofECS("task/app/1"), mine, true, "the app reads its own tasks"},
		{"", "s3:GetObject", "arn:aws:s3:::app-data/x", nil, true, "the app reads its own bucket"},
	}
	for _, r := range stolen {
		questions = append(questions, infratest.Question{Principal: app, Action: r.action, Resource: r.resource, Account: infratest.Account, Context: r.context,
			Identity: []map[string]any{policyOf("*")}, Boundary: boundary})
	}
	rows = append(rows, stolen...)
	for i, q := range questions {
		if q.Resource == key {
			questions[i].ResourceP = s.Resources["StateKey"].Properties["KeyPolicy"].(map[string]any)
		}
		if strings.HasPrefix(q.Resource, bucket) {
			questions[i].ResourceP = s.Resources["StateBucketPolicy"].Properties["PolicyDocument"].(map[string]any)
		}
		for _, role := range operationRoles {
			if q.Action != "sts:AssumeRole" || q.Resource != s.ARN(role) {
				continue
			}
			questions[i].ResourceP = s.Resources[role].Properties["AssumeRolePolicyDocument"].(map[string]any)
			questions[i].Context = merge(q.Context, map[string]any{"sts:RoleSessionName": "job_1", "aws:RequestTag/fairlead-install": install, "aws:RequestTag/fairlead-job": "job_1"})
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s: %s may %s on %s: %t, want %t", r.what, r.role, r.action, r.resource, allowed, r.allowed)
		}
	}
	t.Logf("%d questions", len(rows))
}

// The stack's operations can make, use and remove the roles of the example, but only
// with the path and the boundary that the example's references give them.
func TestExampleRolesCanBeMade(t *testing.T) {
	const example = "../../examples/aws-service/"
	read := func(file string) string {
		text, err := os.ReadFile(example + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	app, module := read("app.yaml"), read("service/iam.tf")
	for _, given := range []string{"role_path: ${install.role_path}\n", "permissions_boundary: ${install.boundary}\n"} {
		if !strings.Contains(app, given) {
			t.Errorf("the example does not give its module %q", given)
		}
	}
	roles := regexp.MustCompile(`(?s)resource "aws_iam_role" "(\w+)" \{\n(.*?)\n\}`).FindAllStringSubmatch(module, -1)
	if len(roles) != 2 {
		t.Errorf("the example has %d roles, want 2", len(roles))
	}
	for _, role := range roles {
		for _, attribute := range []string{`path += var\.role_path\n`, `permissions_boundary += var\.permissions_boundary\n`} {
			if !regexp.MustCompile(attribute).MatchString(role[2]) {
				t.Errorf("the role %s of the example has no %s", role[1], attribute)
			}
		}
	}

	s := stack(t)
	boundary := infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_BOUNDARY"] // the runner reports it
	made := "arn:aws:iam::111122223333:role" + awsiam.AppRolePath(install) + "acme-service"
	elsewhere := "arn:aws:iam::111122223333:role/acme-service"
	under := map[string]any{"iam:PermissionsBoundary": boundary}
	var questions []infratest.Question
	var want []bool
	ask := func(role, action, resource string, context map[string]any, allowed bool) {
		questions = append(questions, infratest.Question{Principal: s.ARN(role), Action: action, Resource: resource, Account: infratest.Account, Context: context,
			Identity: append(s.Policies(role), managed(t, s, role)...), Boundary: s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)})
		want = append(want, allowed)
	}
	for _, role := range []string{"ProvisionRole", "DeployRole"} {
		for _, action := range []string{"iam:CreateRole", "iam:AttachRolePolicy", "iam:PutRolePolicy"} {
			ask(role, action, made, under, true)
			ask(role, action, made, nil, false)
			ask(role, action, elsewhere, under, false)
		}
		for _, action := range []string{"iam:TagRole", "iam:PassRole", "iam:GetRole", "iam:ListRolePolicies", "iam:ListAttachedRolePolicies"} {
			ask(role, action, made, nil, true)
		}
	}
	for _, action := range []string{"iam:GetRole", "iam:GetRolePolicy", "iam:ListAttachedRolePolicies"} {
		ask("ReadOnlyRole", action, made, nil, true)
	}
	for _, action := range []string{"iam:DetachRolePolicy", "iam:DeleteRolePolicy", "iam:DeleteRole", "iam:ListInstanceProfilesForRole"} {
		ask("DeprovisionRole", action, made, under, true)
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if q := questions[i]; allowed != want[i] {
			t.Errorf("%s may %s on %s with %v: %t, want %t", q.Principal, q.Action, q.Resource, q.Context, allowed, want[i])
		}
	}
}

// Two installs are in one account, and each may use S3 and KMS. No install may read
// or write the states of the other install, or remove their protection. Principals
// of the account outside the installs keep their access.
func TestInstallsCannotTouchOthersStates(t *testing.T) {
	const another = "ins_01hzy3v5k8d9m0q2r4t6w8x0z2"
	emergency := []string{"AppActions", "*", "PlansReadData", "Yes"}
	mine, other := stack(t, emergency...), stack(t, append(emergency, "InstallId", another)...)
	bucket, key := mine.ARN("StateBucket"), mine.ARN("StateKey")
	// Resolve gives both stacks the same names where CloudFormation would choose
	// different ones.
	apart := func(text string) string {
		return strings.NewReplacer(bucket, bucket+"-of-another", key, key+"-of-another").Replace(text)
	}
	boundary := func(s infratest.Stack) map[string]any {
		return s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	}
	things := []struct{ action, resource string }{
		{"s3:GetObject", bucket + "/state/web.tfstate"}, {"s3:PutObject", bucket + "/state/web.tfstate"}, {"s3:DeleteObject", bucket + "/state/web.tfstate"},
		{"s3:DeleteObjectVersion", bucket + "/state/web.tfstate"}, {"s3:GetObject", bucket + "/plans/web"}, {"s3:PutObject", bucket + "/providers/x.zip"}, {"s3:ListBucket", bucket}, {"s3:PutBucketPolicy", bucket},
		{"s3:DeleteBucketPolicy", bucket}, {"s3:PutLifecycleConfiguration", bucket}, {"s3:PutReplicationConfiguration", bucket},
		{"kms:Decrypt", key}, {"kms:GenerateDataKey", key}, {"kms:CreateGrant", key}, {"kms:PutKeyPolicy", key}, {"kms:ScheduleKeyDeletion", key},
	}
	var questions []infratest.Question
	var want []bool
	ask := func(q infratest.Question, allowed bool) {
		q.Account = infratest.Account
		q.ResourceP = mine.Resources["StateBucketPolicy"].Properties["PolicyDocument"].(map[string]any)
		if q.Resource == key {
			q.ResourceP = mine.Resources["StateKey"].Properties["KeyPolicy"].(map[string]any)
		}
		questions, want = append(questions, q), append(want, allowed)
	}
	for _, thing := range things {
		for _, role := range []string{"ProvisionRole", "DeployRole", "DeprovisionRole", "ReadOnlyRole", "RunnerRole", "ExecutionRole"} {
			q := infratest.Question{Principal: other.ARN(role), Action: thing.action, Resource: thing.resource}
			for _, p := range append(other.Policies(role), managed(t, other, role)...) {
				q.Identity = append(q.Identity, edited(t, p, apart))
			}
			if other.Resources[role].Properties["PermissionsBoundary"] != nil {
				q.Boundary = edited(t, boundary(other), apart)
			}
			ask(q, false)
		}
		all := []map[string]any{policyOf("*")}
		ask(infratest.Question{Principal: "arn:aws:iam::111122223333:role/fairlead-app/" + another + "/web", Action: thing.action, Resource: thing.resource, Identity: all,
			Boundary: edited(t, boundary(other), apart)}, false)
		for _, administrator := range []string{"role/admin", "role/fairlead/administrators/alice", "user/alice"} {
			ask(infratest.Question{Principal: "arn:aws:iam::111122223333:" + administrator, Action: thing.action, Resource: thing.resource, Identity: all}, true)
		}
	}
	for _, thing := range []struct{ role, action, resource string }{
		{"ReadOnlyRole", "s3:GetObject", bucket + "/state/web.tfstate"}, {"ReadOnlyRole", "kms:Decrypt", key}, {"ReadOnlyRole", "s3:ListBucket", bucket},
		{"ProvisionRole", "s3:PutObject", bucket + "/state/web.tfstate"}, {"DeployRole", "kms:GenerateDataKey", key}, {"DeprovisionRole", "s3:PutObject", bucket + "/state/web.tfstate"},
	} {
		ask(infratest.Question{Principal: mine.ARN(thing.role), Action: thing.action, Resource: thing.resource, Identity: mine.Policies(thing.role), Boundary: boundary(mine)}, true)
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if q := questions[i]; allowed != want[i] {
			t.Errorf("%s may %s on %s: %t, want %t", q.Principal, q.Action, q.Resource, allowed, want[i])
		}
	}
}

// A session that started before the runner was disabled lives for up to an hour.
// After the runner is disabled, the session may save its state and do nothing else.
func TestDisabledRunnersSessionOnlySavesState(t *testing.T) {
	more := []string{"AppActions", "*", "PlansReadData", "Yes"}
	off := stack(t, append(more, "RunnerState", "Disabled")...)
	bucket, key := off.ARN("StateBucket"), off.ARN("StateKey")
	app := "arn:aws:iam::111122223333:role/fairlead-app/" + install + "/web"
	rows := []struct {
		what, action, resource string
		saves                  bool
	}{
		{"the state is read", "s3:GetObject", bucket + "/state/web.tfstate", true},
		{"the lock of the state is removed", "s3:DeleteObject", bucket + "/state/web.tfstate.tflock", true},
		{"the state is sealed", "kms:GenerateDataKey", key, true},
		{"it reads infrastructure", "ec2:DescribeInstances", "*", false},
		{"it makes a machine", "ec2:RunInstances", "arn:aws:ec2:eu-central-1:111122223333:instance/*", false},
		{"it removes a database", "rds:DeleteDBInstance", "arn:aws:rds:eu-central-1:111122223333:db:orders", false},
		{"it makes a role", "iam:CreateRole", app, false},
		{"it removes a role", "iam:DeleteRole", app, false},
		{"it reads a secret", "secretsmanager:GetSecretValue", "arn:aws:secretsmanager:eu-central-1:111122223333:secret:db-AbCdEf", false},
		{"it reads an object", "s3:GetObject", "arn:aws:s3:::app-data/x", false},
		{"it copies an image", "ecr:PutImage", off.ARN("Images"), false},
		{"it reads roles", "iam:GetRole", app, false},
	}
	for _, role := range []string{"ProvisionRole", "DeployRole", "DeprovisionRole", "ReadOnlyRole"} {
		var questions []infratest.Question
		for _, r := range rows {
			questions = append(questions, infratest.Question{Principal: off.ARN(role), Action: r.action, Resource: r.resource, Account: infratest.Account,
				Context:  map[string]any{"iam:PermissionsBoundary": "arn:aws:iam::111122223333:policy/fairlead/" + install + "/boundary-0"},
				Identity: append(off.Policies(role), managed(t, off, role)...), Boundary: off.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)})
			if r.resource == key {
				questions[len(questions)-1].ResourceP = off.Resources["StateKey"].Properties["KeyPolicy"].(map[string]any)
			}
		}
		writes := infratest.Question{Principal: off.ARN(role), Action: "s3:PutObject", Resource: bucket + "/state/web.tfstate", Account: infratest.Account,
			Identity: off.Policies(role), Boundary: off.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)}
		answers := infratest.Ask(t, append(questions, writes))
		for i, r := range rows {
			if answers[i] != r.saves {
				t.Errorf("disabled, a session of %s: %s (%s): %t, want %t", role, r.what, r.action, answers[i], r.saves)
			}
		}
		if saved := answers[len(rows)]; saved != (role != "ReadOnlyRole") {
			t.Errorf("disabled, a session of %s saves the state: %t", role, saved)
		}
	}
}

// A plan of resources whose content Terraform manages calls actions that return data.
// By default the role denies them; the customer can permit them. The states, their key
// and the runner stay protected.
func TestPlansReadDataOnlyIfPermitted(t *testing.T) {
	const viewOnly = "arn:aws:iam::aws:policy/job-function/ViewOnlyAccess"
	no, yes := stack(t), stack(t, "PlansReadData", "Yes")
	narrow, wide := stack(t, "ReadOnlyPolicyArn", viewOnly), stack(t, "ReadOnlyPolicyArn", viewOnly, "PlansReadData", "Yes")
	arn := func(service, resource string) string {
		return "arn:aws:" + service + ":eu-central-1:111122223333:" + resource
	}
	bucket := no.ARN("StateBucket")
	type may struct{ no, yes bool }
	ownReads := regexp.MustCompile(`^(dynamodb:GetItem|kms:Decrypt|s3:GetObject.*|secretsmanager:GetSecretValue|ssm:GetParameter.*)$`) // the stack's statements allow them
	rows := []struct {
		what, action, resource string
		may
	}{
		{"a plan of aws_lambda_function", "lambda:GetFunction", arn("lambda", "function:web"), may{true, true}},
		{"a plan that looks up a machine image", "ssm:GetParameter", "arn:aws:ssm:eu-central-1::parameter/aws/service/ami-amazon-linux-latest/al2023", may{true, true}},
		{"a plan of aws_ssm_parameter", "ssm:GetParameter", arn("ssm", "parameter/db"), may{false, true}},
		{"a plan of aws_ssm_parameter, several at once", "ssm:GetParameters", arn("ssm", "parameter/db"), may{false, true}},
		{"a parameter that has the name of a public one", "ssm:GetParameter", arn("ssm", "parameter/aws/service/db"), may{false, true}},
		{"a plan of aws_secretsmanager_secret_version", "secretsmanager:GetSecretValue", arn("secretsmanager", "secret:db-AbCdEf"), may{false, true}},
		{"a plan of aws_s3_object", "s3:GetObject", "arn:aws:s3:::app-data/index.html", may{false, true}},
		{"a plan of aws_s3_object, its tags", "s3:GetObjectTagging", "arn:aws:s3:::app-data/index.html", may{false, true}},
		{"a plan of aws_dynamodb_table_item", "dynamodb:GetItem", arn("dynamodb", "table/orders"), may{false, true}},
		{"the key of a parameter", "kms:Decrypt", arn("kms", "key/app"), may{false, true}},
		{"a plan reads what a command printed on a machine", "ssm:GetCommandInvocation", "*", may{false, true}},
		{"a plan reads what commands printed on machines", "ssm:ListCommandInvocations", "*", may{false, true}},
		{"a plan reads the outputs of an automation", "ssm:GetAutomationExecution", arn("ssm", "automation-execution/1"), may{false, true}},
		{"a plan gets the token of a node that another opened", "ssm:GetAccessToken", arn("ssm", "opsitem/oi-1"), may{false, true}},
		{"a plan follows a log", "logs:StartLiveTail", arn("logs", "log-group:app"), may{false, true}},
		{"a plan reads an event of a log", "logs:GetLogRecord", arn("logs", "log-group:app"), may{false, true}},
		{"a plan reads the log of a database", "rds:DownloadDBLogFilePortion", arn("rds", "db:app"), may{false, true}},
		{"a plan reads a table as its replica", "dynamodb:ReadDataForReplication", arn("dynamodb", "table/orders"), may{false, true}},
		{"a plan reads a table by vectors", "dynamodb:SearchVectors", arn("dynamodb", "table/orders"), may{false, true}},
		{"a plan reads the screen of a machine", "ec2:GetConsoleScreenshot", arn("ec2", "instance/i-0123456789abcdef0"), may{false, true}},
		{"a plan reads the input and output of an execution", "states:DescribeExecution", arn("states", "execution:app:1"), may{false, true}},
		{"a plan of another's secret", "secretsmanager:GetSecretValue", arn("secretsmanager", "secret:others-AbCdEf"), may{false, false}},
		{"a plan of another's parameter", "ssm:GetParameter", arn("ssm", "parameter/others"), may{false, false}},
		{"a plan writes a state", "s3:PutObject", bucket + "/state/web.tfstate", may{false, false}},
		{"a plan opens the state bucket", "s3:PutBucketPolicy", bucket, may{false, false}},
		{"a plan lets another open the states", "kms:CreateGrant", no.ARN("StateKey"), may{false, false}},
		{"a plan changes what it reads", "ssm:PutParameter", arn("ssm", "parameter/db"), may{false, false}},
	}
	for _, of := range []struct {
		what   string
		stack  infratest.Stack
		yes    bool
		little bool // the role's managed policy permits few reads
	}{
		{"No", no, false, false}, {"Yes", yes, true, false},
		{"No, with a managed policy that reads little", narrow, false, true}, {"Yes, with a managed policy that reads little", wide, true, true},
	} {
		var questions []infratest.Question
		for _, r := range rows {
			var identity []map[string]any
			for _, p := range append(of.stack.Policies("ReadOnlyRole"), managed(t, of.stack, "ReadOnlyRole")...) {
				identity = append(identity, edited(t, p, ofAWS))
			}
			questions = append(questions, infratest.Question{Principal: of.stack.ARN("ReadOnlyRole"), Action: r.action, Resource: ofAWS(r.resource), Account: infratest.Account,
				Context: map[string]any{"aws:ResourceTag/fairlead_install": install}, Identity: identity, Boundary: of.stack.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)})
			if strings.Contains(r.resource, "others") {
				questions[len(questions)-1].Context = nil
			}
			if strings.Contains(r.resource, ":key/") { // each key policy has the account's statement
				questions[len(questions)-1].ResourceP = of.stack.Resources["StateKey"].Properties["KeyPolicy"].(map[string]any)
			}
		}
		for i, allowed := range infratest.Ask(t, questions) {
			want := rows[i].no
			if of.yes {
				want = rows[i].yes
			}
			if of.little && !ownReads.MatchString(rows[i].action) { // only the managed policy can allow this action, and the one of this row does not
				want = false
			}
			if allowed != want {
				t.Errorf("%s: %s (%s on %s): %t, want %t", of.what, rows[i].what, rows[i].action, rows[i].resource, allowed, want)
			}
		}
	}
}

// ofAWS adds an account to the ARNs of AWS's own public parameters, because
// iam-simulate does not support the ARN of a parameter without an account.
func ofAWS(text string) string {
	return strings.ReplaceAll(text, "::parameter/", ":000000000000:parameter/")
}

// edited returns a policy with its text edited.
func edited(t *testing.T, policy map[string]any, edit func(string) string) (out map[string]any) {
	t.Helper()
	text, err := json.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(edit(string(text))), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func merge(ms ...map[string]any) map[string]any {
	out := map[string]any{}
	for _, m := range ms {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// Only a step of an operation takes the operation's role, with the install's external id,
// for a job. With isolation Process, the agent's role is also its steps'.
func TestOnlyAStepAssumesItsRole(t *testing.T) {
	good := map[string]any{"sts:ExternalId": externalID, "sts:RoleSessionName": "job_1", "aws:RequestTag/fairlead-install": install, "aws:RequestTag/fairlead-job": "job_1",
		"aws:TagKeys": []any{"fairlead-install", "fairlead-job"}}
	without := func(key string) map[string]any {
		m := merge(good)
		delete(m, key)
		return m
	}
	on, off, rests, processes := stack(t), stack(t, "RunnerState", "Disabled"), stack(t, "RunnerState", "Paused"), stack(t, "Isolation", "Process")
	of := func(role string) func(string) string { return func(string) string { return role } }
	for _, r := range []struct {
		what    string
		role    func(operation string) string // of the stack
		stack   infratest.Stack
		context map[string]any
		allowed bool
	}{
		{"the step, for a job", stepOf, on, good, true},
		{"the step of a paused runner, to finish its job", stepOf, rests, good, true},
		{"the step of a disabled runner", stepOf, off, good, false},
		{"the step, without the external id", stepOf, on, without("sts:ExternalId"), false},
		{"the step, with another install's external id", stepOf, on, merge(good, map[string]any{"sts:ExternalId": "fl-other-install-0000"}), false},
		{"the step, with a session name that is not a job's", stepOf, on, merge(good, map[string]any{"sts:RoleSessionName": "me"}), false},
		{"the step, for no job", stepOf, on, without("aws:RequestTag/fairlead-job"), false},
		{"the step, for another install", stepOf, on, merge(good, map[string]any{"aws:RequestTag/fairlead-install": "ins_other"}), false},
		{"the step of another operation", func(role string) string {
			return stepOf(operationRoles[(slices.Index(operationRoles, role)+1)%len(operationRoles)])
		}, on, good, false},
		{"the agent", of("RunnerRole"), on, good, false},
		{"the execution role", of("ExecutionRole"), on, good, false},
		{"a process of the agent", of("RunnerRole"), processes, good, true},
		{"a process of the agent, for no job", of("RunnerRole"), processes, without("aws:RequestTag/fairlead-job"), false},
	} {
		var questions []infratest.Question
		for _, role := range operationRoles {
			questions = append(questions, infratest.Question{Principal: r.stack.ARN(r.role(role)), Action: "sts:AssumeRole", Resource: r.stack.ARN(role), Account: infratest.Account,
				Context: r.context, Identity: r.stack.Policies(r.role(role)), ResourceP: r.stack.Resources[role].Properties["AssumeRolePolicyDocument"].(map[string]any)})
		}
		for i, allowed := range infratest.Ask(t, questions) {
			if allowed != r.allowed {
				t.Errorf("%s assumes %s: %t, want %t", r.what, operationRoles[i], allowed, r.allowed)
			}
		}
	}
	for what, principal := range map[string]string{
		"an administrator of the customer":    "arn:aws:iam::111122223333:role/admin",
		"the vendor, from its own account":    "arn:aws:iam::999988887777:role/fairlead-prod-runner-session",
		"a role of the app with all of AWS":   "arn:aws:iam::111122223333:role/fairlead-app/" + install + "/web",
		"the steps' role of another install":  "arn:aws:iam::111122223333:role/fairlead/ins_01hzy3v5k8d9m0q2r4t6w8x0z2/provisionsteprole",
		"a role of the customer by that name": "arn:aws:iam::111122223333:role/provisionsteprole",
	} {
		var questions []infratest.Question
		for _, role := range operationRoles {
			questions = append(questions, infratest.Question{Principal: principal, Action: "sts:AssumeRole", Resource: on.ARN(role), Account: infratest.Account,
				Context: good, Identity: []map[string]any{policyOf("*")}, ResourceP: on.Resources[role].Properties["AssumeRolePolicyDocument"].(map[string]any)})
		}
		for i, allowed := range infratest.Ask(t, questions) {
			if allowed {
				t.Errorf("%s assumes %s", what, operationRoles[i])
			}
		}
	}
}
