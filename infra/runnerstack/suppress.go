package runnerstack

import (
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/fairlead/fairlead/infra/internal/nag"
	"github.com/fairlead/fairlead/infra/internal/policy"
)

// reasons gives, by Sid, the reason for each statement with a wildcard.
var reasons = map[string]string{
	"ReadStates":           "the states and plans of the install's components, by prefix",
	"LockStates":           "the locks beside the states, by suffix",
	"WriteStates":          "the states of the install's components, by prefix",
	"SavePlans":            "the saved plans, by prefix",
	"ShareProviders":       "the archives of providers, by prefix; a step uses one only with a hash of its lock file",
	"UseLedger":            "the entries of the ledger, by prefix",
	"Own":                  "the entries of the ledger, by prefix: it denies",
	"ReadRoles":            "a plan reads the roles and policies that the app has, and their names are the app's choice",
	"App":                  "which actions is the customer's choice, a parameter; on what cannot be known before the app is, so the boundary guards what it must not touch",
	"GiveUnderTheBoundary": "roles below the app's own path alone, and only under the boundary",
	"TrimUnderABoundary":   "roles below the app's own path alone, and only under a boundary of this install",
	"ShapeAppRoles":        "roles below the app's own path alone",
	"DropAppRoles":         "roles below the app's own path alone",
	"ServiceLinkedRoles":   "roles that AWS defines, and that a service makes for itself",
	"ReadData":             "whether plans read data is the customer's choice, a parameter; by default these are AWS's public parameters alone",
	"OpenData":             "whether plans read data is the customer's choice, a parameter; by default this is the states' key alone",
	"ReadImages":           "repositories of the install alone, below its path, and the customer's mirror of bundles",
	"RemoveImages":         "repositories of the install alone, below its path",
	"CopyImages":           "repositories of the install alone, below its path; a component names each",
	"RegistryLogin":        "the action knows no resource; it opens what the other statements allow",
	"PullImage":            "ECS pulls with this role, and only the image that the task names by digest; the vendor's account is not known to the template",
	"StartSteps":           "every revision of the task definitions of steps, in the runner's cluster only: an update of the stack makes a new one",
	"TagSteps":             "tasks of the runner's own cluster, while they are started",
	"WatchSteps":           "tasks of the runner's own cluster",
	"FindSteps":            "the action knows no resource for Fargate; a condition limits it to the runner's cluster",
	"OpenSecrets":          "the keys of the customer's secrets are not known; a condition limits it to what Secrets Manager and SSM open, and these open only the named secrets",
	"OpenSeed":             "the key of the customer's seed is not known; a condition limits it to what Secrets Manager opens, and it opens only the named secret",
	"ReadOutput":           "the streams of steps in the runner's own log group",
	"Services":             "a ceiling: it gives nothing; what the install did not make, and what guards the runner, is denied below it",
	"States":               "a ceiling for the stack's own bucket, key and repositories; the app's roles are denied the bucket and key below it",
	"AppRoles":             "a ceiling for what is below the app's own path; roles get permissions only under the boundary",
}

// argued lists, by Sid, the actions that statements with a wildcard allow, each with what
// would fail without it. A new action of such a statement needs its own argument.
var argued = map[string]map[string]string{
	"ReadStates":     {"s3:GetObject": "a job starts with the state and the plan that an earlier job left"},
	"LockStates":     {"s3:PutObject": "a job locks its state", "s3:DeleteObject": "a job unlocks its state"},
	"WriteStates":    {"s3:PutObject": "an apply writes its state"},
	"SavePlans":      {"s3:PutObject": "an apply uses the saved plan"},
	"ShareProviders": {"s3:GetObject": "a job takes a provider that another one downloaded", "s3:PutObject": "a job stores the provider that it downloaded"},
	"ReadRoles": {"iam:Get*": "a refresh reads each role, policy and instance profile", "iam:List*": "a refresh reads what is attached to a role, and a removal finds what it must detach",
		"ecr:GetAuthorizationToken": "the login to a registry has no resource"},
	"GiveUnderTheBoundary": {"iam:CreateRole": "the app's functions and tasks have roles", "iam:PutRolePermissionsBoundary": "a role of a deleted stack gets this stack's boundary",
		"iam:AttachRolePolicy": "a role gets a managed policy", "iam:PutRolePolicy": "a role gets a policy of its own"},
	"TrimUnderABoundary": {"iam:DetachRolePolicy": "a change or a removal takes a managed policy from a role", "iam:DeleteRolePolicy": "a change or a removal takes a role's own policy"},
	"ShapeAppRoles": {"iam:UpdateRole": "the longest session of a role changes", "iam:UpdateRoleDescription": "the description of a role changes", "iam:UpdateAssumeRolePolicy": "the trust of a role changes",
		"iam:TagRole": "a role gets the install's tag", "iam:UntagRole": "a tag of a role is removed", "iam:PassRole": "a function, task or machine gets its role",
		"iam:CreatePolicy": "a module keeps permissions in a policy", "iam:CreatePolicyVersion": "such a policy changes", "iam:TagPolicy": "a policy gets the install's tag",
		"iam:CreateInstanceProfile": "a machine has a role", "iam:AddRoleToInstanceProfile": "a machine's profile gets its role", "iam:TagInstanceProfile": "a profile gets the install's tag",
		"iam:DeleteRole": "a change replaces a role", "iam:DeletePolicy": "a change replaces a policy", "iam:DeletePolicyVersion": "IAM keeps five versions, so an older one goes",
		"iam:DeleteInstanceProfile": "a change replaces a profile", "iam:RemoveRoleFromInstanceProfile": "a change gives a profile another role"},
	"DropAppRoles": {"iam:DeleteRole": "a removal deletes roles", "iam:DeletePolicy": "a removal deletes policies", "iam:DeletePolicyVersion": "IAM deletes no policy with older versions",
		"iam:DeleteInstanceProfile": "a removal deletes profiles", "iam:RemoveRoleFromInstanceProfile": "IAM deletes no profile with a role"},
	"ServiceLinkedRoles": {"iam:CreateServiceLinkedRole": "the first load balancer, cache or cluster of an account needs the role of its service"},
	"ReadData":           {"dynamodb:GetItem": "a plan reads an item that Terraform manages", "s3:GetObject*": "a plan reads an object, its tags and its checksum", "secretsmanager:GetSecretValue": "a plan reads a secret that Terraform manages", "ssm:GetParameter*": "a plan reads a parameter, or the public id of a machine image"},
	"OpenData":           {"kms:Decrypt": "the data that a plan reads can be encrypted"},
	"ReadImages": {"ecr:BatchCheckLayerAvailability": "a layer that is there is not copied again", "ecr:BatchGetImage": "a plan compares what is there with the source",
		"ecr:GetDownloadUrlForLayer": "a copied image is verified", "ecr:ListImages": "the tags are the list of what was copied"},
	"RemoveImages": {"ecr:BatchDeleteImage": "an apply removes earlier images, and a destroy all"},
	"CopyImages": {"ecr:CreateRepository": "a component has a repository of its own", "ecr:TagResource": "the repository gets the install's tag", "ecr:InitiateLayerUpload": "a layer is copied",
		"ecr:UploadLayerPart": "a layer is copied", "ecr:CompleteLayerUpload": "a layer is copied", "ecr:PutImage": "a manifest is copied"},
	"RegistryLogin": {"ecr:GetAuthorizationToken": "the login to a registry has no resource"},
	"States":        {"s3:*": "what a role's own policy allows on the state bucket", "kms:*": "what a role's own policy allows on the states' key", "ecr:*": "what a role's own policy allows on the install's repositories"},
	"AppRoles":      {"iam:*": "what a role's own policy allows on the app's roles: the Deny statements name what none may do"},
}

// checkArgued reports an action of a statement with a wildcard that has no argument.
func (b *builder) checkArgued(statements []policy.Statement) error {
	for _, s := range statements {
		if s.Deny || s.Sid == "App" || s.Sid == "Services" || !strings.Contains(fmt.Sprint(b.stack.Resolve(s.Actions), b.stack.Resolve(s.Resources)), "*") {
			continue // App and Services have the parameter, see defaultActions
		}
		for _, action := range s.Actions {
			if argued[s.Sid][action] == "" {
				return fmt.Errorf("the action %s of statement %s has no argument in argued", action, s.Sid)
			}
		}
	}
	return nil
}

// suppress suppresses each rule that the stack does not follow, with a reason.
func (b *builder) suppress() error {
	if err := b.checkArgued(b.ceiling()); err != nil {
		return err
	}
	for _, o := range operations {
		if err := b.checkArgued(b.statements(o.name)); err != nil {
			return err
		}
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
		nag.Suppress(b.operations[o], "CdkNagValidationFailure", "the rule cannot read actions that are a parameter; each default has its reason in defaultActions, and tests evaluate the role")
	}
	nag.Suppress(b.boundary, "CdkNagValidationFailure", "the rule cannot read actions that are a parameter; each default has its reason in defaultActions, and tests evaluate the boundary")
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
	if err := nag.Wildcards(b.stack, b.seedAccess, b.readsSeed(), reasons); err != nil {
		return err
	}
	nag.Suppress(b.seed, "AwsSolutions-SMG4", "a new seed opens no earlier value: the customer rotates it by hand, and keeps the earlier one below the new one")
	if err := nag.Wildcards(b.stack, b.stepPolicy, b.enforcesPolicy(), reasons); err != nil {
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
	for _, task := range b.scriptTasks {
		nag.Suppress(task, "AwsSolutions-ECS2", "it has no variables: the agent gives each step its input and a token that is used once")
		nag.Acknowledge(task, "E3047", "CPU and memory come from one row of a mapping; a test holds each row against what Fargate knows")
	}
	nag.Suppress(b.cluster, "AwsSolutions-ECS4", "one task: its metrics come with ECS, and Container Insights would cost the customer more than the runner's own log")
	nag.Suppress(b.network.vpc, "AwsSolutions-VPC7", "flow logs are the customer's choice, a parameter: the VPC holds one task without a way in")
	nag.Suppress(b.state, "AwsSolutions-S1", "who reads states is in the customer's CloudTrail, with the job's id as the session's name; a bucket of access logs says less")
	return nil
}
