package runnerstack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/fairlead/fairlead/infra/internal/nag"
)

// reasons gives, by Sid, the reason for each statement with a wildcard.
var reasons = map[string]string{
	"ReadStates":           "the states and plans of the install's components, by prefix",
	"LockStates":           "the locks beside the states, by suffix",
	"WriteStates":          "the states of the install's components, by prefix",
	"SavePlans":            "the saved plans, by prefix",
	"ShareProviders":       "the archives of providers, by prefix; a step uses one only with a hash of its lock file",
	"ReadRoles":            "a plan reads the roles and policies that the app has, and their names are the app's choice",
	"App":                  "which actions is the customer's choice, a parameter; on what cannot be known before the app is, so the boundary guards what it must not touch",
	"GiveUnderTheBoundary": "roles below the app's own path alone, and only under the boundary",
	"TrimUnderABoundary":   "roles below the app's own path alone, and only under a boundary of this install",
	"ShapeAppRoles":        "roles below the app's own path alone",
	"DropAppRoles":         "roles below the app's own path alone",
	"ServiceLinkedRoles":   "roles that AWS defines, and that a service makes for itself",
	"ReadData":             "whether plans read data is the customer's choice, a parameter; by default these are AWS's public parameters alone",
	"OpenData":             "whether plans read data is the customer's choice, a parameter; by default this is the states' key alone",
	"RegistryLogin":        "the action knows no resource; it opens what the other statements allow",
	"PullImage":            "ECS pulls with this role, and only the image that the task names by digest; the vendor's account is not known to the template",
	"StartSteps":           "every revision of the step's own task definition, in the runner's cluster only: an update of the stack makes a new one",
	"TagSteps":             "tasks of the runner's own cluster, while they are started",
	"WatchSteps":           "tasks of the runner's own cluster",
	"FindSteps":            "the action knows no resource for Fargate; a condition limits it to the runner's cluster",
	"OpenSecrets":          "the keys of the customer's secrets are not known; a condition limits it to what Secrets Manager and SSM open, and these open only the named secrets",
	"ReadOutput":           "the streams of steps in the runner's own log group",
	"Services":             "a ceiling: it gives nothing; what the install did not make, and what guards the runner, is denied below it",
	"States":               "a ceiling for the stack's own bucket, key and repositories; the app's roles are denied the bucket and key below it",
	"AppRoles":             "a ceiling for what is below the app's own path; roles get permissions only under the boundary",
}

// suppress suppresses each rule that the stack does not follow, with a reason.
func (b *builder) suppress() error {
	for _, o := range operations {
		if err := nag.Wildcards(b.stack, b.operations[o.name], b.statements(o.name), reasons); err != nil {
			return err
		}
	}
	if err := nag.Wildcards(b.stack, b.execution, b.executionAccess(), reasons); err != nil {
		return err
	}
	if err := nag.Wildcards(b.stack, b.boundary, b.ceiling(), reasons); err != nil {
		return err
	}
	for _, o := range []string{provision, deploy, deprovision} {
		nag.Suppress(b.operations[o], "CdkNagValidationFailure", "the rule cannot read actions that are a parameter; tests evaluate the role with the parameter's default")
	}
	nag.Suppress(b.boundary, "CdkNagValidationFailure", "the rule cannot read actions that are a parameter; tests evaluate the boundary with the parameter's default")
	nag.Acknowledge(b.boundary, "W2512", "it is a ceiling, not a grant: what is allowed is decided by each role's own policy, by name")
	nag.Acknowledge(b.task, "E3047", "CPU and memory come from one row of a mapping; a test holds each row against what Fargate knows")
	const empty = "the parameter is empty only where a new VPC takes its place; a rule of the template sees to it"
	nag.Acknowledge(b.network.group, "E1151", empty)
	nag.Lint(b.network.group, "W1030", empty)
	nag.Acknowledge(b.runner, "E1154", empty)
	nag.Lint(b.runner, "W1030", empty)
	if err := nag.Wildcards(b.stack, b.taskPolicy, b.agentTasks(), reasons); err != nil {
		return err
	}
	if err := nag.Wildcards(b.stack, b.stepSecrets, b.readsSecrets(), reasons); err != nil {
		return err
	}
	nag.Acknowledge(b.stack, "W2509", "JobSecrets has the ARNs of secrets, and no secret")
	nag.Acknowledge(b.stack, "W1001", "the outputs name the bucket and the key under the same condition as they are made")
	for _, group := range []awscdk.CfnResource{b.log, b.flowLog} {
		nag.Acknowledge(group, "F3031", "the parameter is empty only where no key is set")
	}
	nag.Suppress(b.task, "AwsSolutions-ECS2", "the variables are names and public keys; the stack holds no secret")
	nag.Suppress(b.stepTask, "AwsSolutions-ECS2", "it has no variables: the agent gives each step its input and a token that is used once")
	nag.Acknowledge(b.stepTask, "E3047", "CPU and memory come from one row of a mapping; a test holds each row against what Fargate knows")
	nag.Suppress(b.cluster, "AwsSolutions-ECS4", "one task: its metrics come with ECS, and Container Insights would cost the customer more than the runner's own log")
	nag.Suppress(b.network.vpc, "AwsSolutions-VPC7", "flow logs are the customer's choice, a parameter: the VPC holds one task without a way in")
	nag.Suppress(b.state, "AwsSolutions-S1", "who reads states is in the customer's CloudTrail, with the job's id as the session's name; a bucket of access logs says less")
	return nil
}
