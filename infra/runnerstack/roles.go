package runnerstack

import (
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
	"github.com/fairlead/fairlead/infra/internal/policy"
)

// The names of the operations. Each has its own role.
const (
	provision   = "provision"
	deploy      = "deploy"
	deprovision = "deprovision"
	readOnly    = "read-only"
)

var operations = []struct{ name, title, verb string }{
	{provision, "Provision", "makes the app's infrastructure"},
	{deploy, "Deploy", "changes the app, and cannot remove what holds data"},
	{deprovision, "Deprovision", "removes the app, and cannot make roles"},
	{readOnly, "ReadOnly", "plans, and reads no data"},
}

// IAM paths of the runner's and of the app's roles and policies. The boundary
// distinguishes them by these paths.
func (b *builder) ownPath() string { return "/fairlead/" + *b.p.installID.ValueAsString() + "/" }
func (b *builder) appPath() string { return "/fairlead-app/" + *b.p.installID.ValueAsString() + "/" }

func (b *builder) iamARN(resource string) string {
	return "arn:" + b.partition + ":iam::" + b.account + ":" + resource
}

// boundaryName returns the name of the boundary. The name is different for each stack,
// because the boundary of a deleted stack stays, and a new stack of the same install
// must make another boundary.
func boundaryName() string { return "boundary-" + stackUUID() }

func stackUUID() string {
	parts := awscdk.Fn_Split(jsii.String("/"), awscdk.Aws_STACK_ID(), nil) // arn:…:stack, name, identifier
	return *awscdk.Fn_Select(jsii.Number(2), parts)
}

func (b *builder) boundaryARN() string { return b.iamARN("policy" + b.ownPath() + boundaryName()) }

// Operations make, change and remove roles only below the app's path. They make a
// role, or give it permissions, only if the role has the boundary.
var (
	makeRoles  = []string{"iam:CreateRole", "iam:PutRolePermissionsBoundary", "iam:AttachRolePolicy", "iam:PutRolePolicy"}
	trimRoles  = []string{"iam:DetachRolePolicy", "iam:DeleteRolePolicy"}
	shapeRoles = []string{"iam:UpdateRole", "iam:UpdateRoleDescription", "iam:UpdateAssumeRolePolicy", "iam:TagRole", "iam:UntagRole", "iam:PassRole",
		"iam:CreatePolicy", "iam:CreatePolicyVersion", "iam:TagPolicy", "iam:CreateInstanceProfile", "iam:AddRoleToInstanceProfile", "iam:TagInstanceProfile"}
	dropRoles = []string{"iam:DeleteRole", "iam:DeletePolicy", "iam:DeletePolicyVersion", "iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"}
	readRoles = []string{"iam:Get*", "iam:List*"}
)

func (b *builder) appIAM() []string {
	return []string{b.iamARN("role" + b.appPath() + "*"), b.iamARN("policy" + b.appPath() + "*"), b.iamARN("instance-profile" + b.appPath() + "*")}
}

func (b *builder) underBoundary() map[string]map[string]any {
	return map[string]map[string]any{"StringEquals": {"iam:PermissionsBoundary": b.boundaryARN()}}
}

// underAnyBoundary is the condition for an app's role that a deleted stack of this install
// may have made. No role of the install can make a policy below this path.
func (b *builder) underAnyBoundary() map[string]map[string]any {
	return map[string]map[string]any{"StringLike": {"iam:PermissionsBoundary": b.iamARN("policy" + b.ownPath() + "boundary-*")}}
}

// othersTypes returns the resource types with which a role could take over the account or
// read its data, and whose tags IAM compares with aws:ResourceTag. IAM compares no tag of
// an S3 object, a DNS record or a database's own users, so these are not listed. Most patterns
// have no account, because a boundary has few characters. Those with an account leave out what
// AWS and other accounts own, whose own policies decide.
//
// To make a key with tags, a role needs kms:TagResource on all keys, and KMS compares no tag of
// the new key. So the pattern of keys matches only the identifier of a key, which has a hyphen.
func (b *builder) othersTypes() []string {
	here := func(service, resource string) string { return "arn:*:" + service + ":*:" + b.account + ":" + resource }
	return []string{
		"arn:*:dynamodb:*:*:table/*", "arn:*:ec2:*:*:instance/*", "arn:*:ec2:*:*:launch-template/*", "arn:*:ec2:*:*:volume/*", here("ecr", "*"), "arn:*:ecs:*", "arn:*:eks:*",
		"arn:*:events:*:*:rule/*", here("kms", "key/*-*"), "arn:*:lambda:*:*:function:*", here("logs", "log-group:*"),
		"arn:*:rds:*:*:cluster:*", "arn:*:rds:*:*:db:*", "arn:*:secretsmanager:*", here("sns", "*"), "arn:*:sqs:*", here("ssm", "document/*"), "arn:*:ssm:*:*:managed-instance/*", here("ssm", "parameter/*"),
		"arn:*:states:*:*:stateMachine:*",
	}
}

// Actions on the types of othersTypes that a role may use without the install's tag on the
// resource: they make the resource, read its configuration, or use what AWS's own services
// make without tags, such as an image, a log or a key.
var (
	makesNew = []string{"dynamodb:CreateTable", "ec2:CreateLaunchTemplate", "ec2:CreateVolume", "ec2:RunInstances", "ecr:CreateRepository", "ecs:CreateCluster", "ecs:CreateService",
		"ecs:RegisterTaskDefinition", "eks:CreateCluster", "events:PutRule", "lambda:CreateFunction", "logs:CreateLogGroup", "rds:CreateDBCluster", "rds:CreateDBInstance",
		"rds:RestoreDB*From*", "secretsmanager:CreateSecret", "sns:CreateTopic", "sqs:CreateQueue", "ssm:CreateDocument", "ssm:PutParameter", "states:CreateStateMachine"}
	readsConfig = []string{"dynamodb:Describe*", "dynamodb:List*", "ecr:Describe*", "ecr:List*", "ecs:Describe*", "ecs:List*", "eks:Describe*", "eks:List*", "events:Describe*", "events:List*",
		"kms:Describe*", "kms:List*", "logs:Describe*", "logs:List*", "rds:Describe*", "sns:Get*", "sns:List*", "sqs:GetQueue*", "ssm:DescribeDoc*", "ssm:GetDoc*"}
	usesShared = []string{"ecr:BatchC*", "ecr:BatchG*", "ecr:BatchI*", "ecr:Get*", "kms:*crypt*", "kms:G*", "logs:CreateLogStream", "logs:DeleteLogStream", "logs:PutLogEvents",
		"sns:Publish", "sns:SetSub*", "sns:Unsub*"}
)

// copies lists the types of copies of data. The ARN of a volume's snapshot has no account.
var copies = []string{"arn:*:ec2:*::snapshot/*", "arn:*:rds:*:*:auto-backup:*", "arn:*:rds:*:*:cluster-auto-backup:*", "arn:*:rds:*:*:cluster-snapshot:*", "arn:*:rds:*:*:snapshot:*"}

// never lists actions that no role may use: they name no resource whose tags IAM compares, or
// give away what the app has no reason to share. The first ones run commands on machines
// which a request names by a target, such as a tag, or take over a shell that another person
// opened. Others return credentials, copy the traffic of a network interface, use a certificate's
// key in an enclave, or change a setting of the account that protects data. The action that
// removes such a setting is denied too. Some patterns also deny reading the setting; no recorded
// module reads one of these.
var never = []string{"ssm:CreateAct*", "ssm:*Association*", "ssm:*Mainten*", "ssm:ResumeS*", "ssm:Start*Execution",
	"acm:Ex*", "ec2:*ableEbs*", "ec2:*BlockPub*", "ec2:*Enclave*", "ec2:CreateStore*", "ec2:CreateTraf*", "ec2:ExportI*", "ec2:M*Ebs*", "ec2:ModifyIm*",
	"ecr:*Registry*", "ecr:*Signing*", "ecr:PutAcc*", "ecr:PutRe*", "ecs:P*Acc*", "events:Retr*", "iam:DeleteRolePerm*", "kms:*KeyStore*", "logs:*AccountP*", "s3:PutAccount*", "states:GetE*"}

// ofOthers is the condition for a resource that this install did not make: its tag is
// another, or absent. The keys with CreateAction are present only while EC2 or ECS tags a
// resource that the same request makes. Other services put the tags of such a request into
// aws:ResourceTag, except KMS. So no role can put the tag on a resource of others and use it then.
func (b *builder) ofOthers() map[string]map[string]any {
	return map[string]map[string]any{
		"StringNotEquals": {"aws:ResourceTag/" + tagResource: *b.p.installID.ValueAsString()},
		"Null":            {"ec2:CreateAction": "true", "ecs:CreateAction": "true"},
	}
}

// notByService is ofOthers for a request that the role itself sends. The keys here are present
// while a service uses a key for the role, or makes a rule for it.
func (b *builder) notByService() map[string]map[string]any {
	c := b.ofOthers()
	c["Null"]["events:ManagedBy"], c["Null"]["kms:ViaService"] = "true", "true"
	return c
}

// guards returns what guards the runner: the stack's own roles, policies, states, settings and
// tasks. AWS accepts no wildcard for the type in an ARN, so each type has its own. The names
// have no region and account where that is possible, because a boundary has few characters.
func (b *builder) guards() []string {
	cluster := b.family()
	return []string{b.bucketARN() + "*", b.keyARN(), b.iamARN("policy" + b.ownPath() + "*"), b.iamARN("role" + b.ownPath() + "*"),
		"arn:*:ecs:*:*:cluster/" + cluster, "arn:*:ecs:*:*:service/" + cluster + "/*", "arn:*:ecs:*:*:task/" + cluster + "/*", "arn:*:ecs:*:*:task-definition/" + cluster + "*",
		"arn:*:logs:*:*:log-group:" + *b.log.Ref() + "*", // IAM accepts the ARN with and without ":*"
		"arn:*:ssm:*:*:parameter" + b.modeName(),
		"arn:*:cloudformation:*:*:stack/*/" + stackUUID()}
}

// useOfGuards lists the actions that a role may use on what guards returns, if its own policy allows them: to read,
// write and lock states, and to read configuration. Tasks are not read: DescribeTasks returns
// the overrides of a task, and so the launch token of a job that starts. The stack is not read
// either: no role needs it, and a boundary has few characters.
var useOfGuards = []string{"iam:Get*", "iam:List*",
	"kms:*crypt*", "kms:Describe*", "kms:G*", "kms:List*", "s3:DeleteObject", "s3:Get*", "s3:List*", "s3:PutObject"}

// mirrorOfBundles is the path of the repository to which the customer copies the bundles of closed apps. The jobs of each install of
// the account only read it.
const mirrorOfBundles = "/fairlead/mirror"

// ceiling returns the boundary. It is the upper limit of the permissions of each role
// of the runner and of the app, even if the role's policies allow more.
func (b *builder) ceiling() []policy.Statement {
	bucket, key, id := b.bucketARN(), b.keyARN(), *b.p.installID.ValueAsString()
	inAccount := b.ofOthers()
	inAccount["StringEqualsIfExists"] = map[string]any{"ec2:Owner": b.account} // a machine image of AWS has snapshots too
	return []policy.Statement{
		// The parameter's pattern excludes iam and sts, so no role can assume another one. A service that the
		// app does not use, such as CloudFormation with the roles of others' stacks, is closed to each role.
		{Sid: "Services", Actions: whole(b.p.appActions.ValueAsList()), Resources: []string{"*"}},
		{Sid: "States", Actions: []string{"s3:*", "kms:*", "ecr:*"}, Resources: []string{bucket, bucket + "/*", key, "arn:*:ecr:*:*:repository" + b.ownPath() + "*",
			"arn:*:ecr:*:" + b.account + ":repository" + mirrorOfBundles}}, // OthersStay lets them only read it
		{Sid: "ReadRoles", Actions: append([]string{"ecr:GetAuthorizationToken"}, readRoles...), Resources: []string{"*"}},
		{Sid: "AppRoles", Actions: []string{"iam:*"}, Resources: b.appIAM()},
		{Sid: "ServiceLinkedRoles", Actions: []string{"iam:CreateServiceLinkedRole"}, Resources: []string{b.iamARN("role/aws-service-role/*")}},

		{Sid: "GiveUnderTheBoundary", Deny: true, Actions: []string{"iam:CreateRole", "iam:PutRoleP*", "iam:AttachRoleP*"}, Resources: []string{"*"}, Conditions: map[string]map[string]any{
			"StringNotEquals": b.underBoundary()["StringEquals"]}},
		{Sid: "RunnerStays", Deny: true, NotActions: useOfGuards, Resources: b.guards()},
		{Sid: "Own", Deny: true, Actions: []string{"s3:*"}, Resources: []string{"arn:*:s3:::*" + ledgerPrefix + "*"}},
		// RunTask and ListTasks name a cluster, and no resource in it.
		{Sid: "ClusterStays", Deny: true, Actions: []string{"ecs:*"}, Resources: []string{"*"}, Conditions: map[string]map[string]any{
			"ArnLike": {"ecs:cluster": "arn:*:ecs:*:*:cluster/" + b.family()}}},
		{Sid: "OthersStay", Deny: true, NotActions: slices.Concat(makesNew, readsConfig, usesShared), Resources: b.othersTypes(), Conditions: b.notByService()},
		{Sid: "CopiesStay", Deny: true, NotActions: []string{"ec2:CreateSnapshot*", "rds:CreateDB*Snapshot", "rds:Describe*"}, Resources: copies, Conditions: inAccount},
		// An overwrite of a parameter cannot have tags, so it needs the tag on the parameter; a new one has it in the request.
		{Sid: "ParametersStay", Deny: true, Actions: []string{"ssm:PutParameter"},
			Resources: []string{"*"}, Conditions: map[string]map[string]any{"StringNotEquals": {"aws:RequestTag/" + tagResource: id, "aws:ResourceTag/" + tagResource: id}}},
		{Sid: "Never", Deny: true, Actions: never, Resources: []string{"*"}},
	}
}

// loses lists the actions that destroy data. A deployment does not need them; a
// teardown does.
var loses = []string{
	"dynamodb:DeleteTable", "dynamodb:DeleteBackup", "ec2:DeleteSnapshot", "ec2:DeleteVolume", "elasticache:DeleteReplicationGroup", "elasticache:DeleteSnapshot",
	"elasticfilesystem:DeleteFileSystem", "kms:DisableKey", "kms:ScheduleKeyDeletion", "rds:DeleteDBCluster", "rds:DeleteDBClusterSnapshot", "rds:DeleteDBInstance",
	"rds:DeleteDBSnapshot", "s3:DeleteBucket", "s3:DeleteObjectVersion", "secretsmanager:DeleteSecret",
}

// reads lists the actions that return data, not configuration. lambda:GetFunction is
// not included: each plan of a function calls it, and its variables, which may be
// secret, are also in GetFunctionConfiguration.
var reads = []string{
	"athena:GetQueryResults*", "dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:GetRecords", "dynamodb:PartiQLSelect", "dynamodb:Query", "dynamodb:ReadDataForReplication",
	"dynamodb:Scan", "dynamodb:SearchVectors", "ec2:GetConsole*", "ec2:GetPasswordData", "kinesis:GetRecords", "logs:FilterLogEvents", "logs:GetLogEvents",
	"logs:GetLogRecord", "logs:GetQueryResults", "logs:StartLiveTail", "logs:StartQuery", "rds:Download*", "secretsmanager:GetSecretValue", "sqs:ReceiveMessage",
	"ssm:GetAccessToken", "ssm:GetAutomationExecution", "ssm:GetCommandInvocation", "ssm:GetParameter*", "ssm:ListCommandInvocations", "states:DescribeExecution",
}

// plansRead lists the actions that a plan needs to read resources whose content
// Terraform manages.
var plansRead = []string{"dynamodb:GetItem", "s3:GetObject*", "secretsmanager:GetSecretValue", "ssm:GetParameter*"}

// publicParameters returns the ARN pattern of AWS's own parameters, such as the ids of
// machine images.
func (b *builder) publicParameters() string {
	return "arn:" + b.partition + ":ssm:*::parameter/aws/service/*"
}

// unlessPlansReadData returns the given resources. If the customer lets plans read
// data, it returns all resources ("*").
func (b *builder) unlessPlansReadData(resources ...string) []string {
	return whole(awscdk.Token_AsList(onIf(b.p.readsData, []string{"*"}, resources), nil))
}

// whole is for a list whose elements are unknown before the deployment. It returns
// a list with one element, a token that stands for the whole list.
func whole(list *[]*string) []string {
	out := make([]string, len(*list))
	for i, v := range *list {
		out[i] = *v
	}
	return out
}

// actionsOf returns the actions of the app that an operation has.
func (b *builder) actionsOf(operation string) []string {
	own, ok := b.p.operationActions[operation]
	if !ok {
		return nil
	}
	return whole(awscdk.Token_AsList(onIf(b.p.hasOwnActions[operation], own.ValueAsList(), b.p.appActions.ValueAsList()), nil))
}

// statements returns the statements of an operation's role. The role may also have a
// managed policy.
func (b *builder) statements(operation string) []policy.Statement {
	bucket, key := b.bucketARN(), b.keyARN()
	states, plans, archives := bucket+"/"+statePrefix+"*", bucket+"/"+planPrefix+"*", bucket+"/"+providerPrefix+"*"
	list := []policy.Statement{
		{Sid: "FindStates", Actions: []string{"s3:ListBucket", "s3:GetBucketVersioning"}, Resources: []string{bucket}},
		{Sid: "ReadStates", Actions: []string{"s3:GetObject"}, Resources: []string{states, plans}},
		{Sid: "LockStates", Actions: []string{"s3:PutObject", "s3:DeleteObject"}, Resources: []string{states + lockSuffix}},
		{Sid: "ShareProviders", Actions: []string{"s3:GetObject", "s3:PutObject"}, Resources: []string{archives}},
		{Sid: "OpenStates", Actions: []string{"kms:GenerateDataKey", "kms:Decrypt"}, Resources: []string{key}},
		{Sid: "ReadRoles", Actions: readRoles, Resources: []string{"*"}},
	}
	write := policy.Statement{Sid: "WriteStates", Actions: []string{"s3:PutObject"}, Resources: []string{states}}
	app := policy.Statement{Sid: "App", Actions: b.actionsOf(operation), Resources: []string{"*"}}
	roles := []policy.Statement{
		{Sid: "GiveUnderTheBoundary", Actions: makeRoles, Resources: b.appIAM(), Conditions: b.underBoundary()},
		{Sid: "TrimUnderABoundary", Actions: trimRoles, Resources: b.appIAM(), Conditions: b.underAnyBoundary()},
		{Sid: "ShapeAppRoles", Actions: append(append([]string{}, shapeRoles...), dropRoles...), Resources: b.appIAM()},
		{Sid: "ServiceLinkedRoles", Actions: []string{"iam:CreateServiceLinkedRole"}, Resources: []string{b.iamARN("role/aws-service-role/*")}},
	}
	// Each component with an image has a repository of its own below the install's path, which its apply makes.
	own := []string{"arn:" + b.partition + ":ecr:*:" + b.account + ":repository" + b.ownPath() + "*"}
	look := []policy.Statement{
		{Sid: "ReadImages", Actions: []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:ListImages"}, Resources: append(slices.Clone(own), "arn:"+b.partition+":ecr:*:"+b.account+":repository"+mirrorOfBundles)},
		{Sid: "RegistryLogin", Actions: []string{"ecr:GetAuthorizationToken"}, Resources: []string{"*"}},
	}
	remove := policy.Statement{Sid: "RemoveImages", Actions: []string{"ecr:BatchDeleteImage"}, Resources: own}
	push := append(slices.Clone(look), remove, policy.Statement{Sid: "CopyImages",
		Actions: []string{"ecr:CreateRepository", "ecr:TagResource", "ecr:InitiateLayerUpload", "ecr:UploadLayerPart", "ecr:CompleteLayerUpload", "ecr:PutImage"}, Resources: own})
	switch operation {
	case provision: // the providers of a closed app's module are in the mirror
		list = append(append(append(list, write, app), roles...), look...)
	case deploy:
		list = append(append(append(list, write, app), roles...), push...)
		list = append(list, policy.Statement{Sid: "DataStays", Deny: true, Actions: loses, Resources: []string{"*"}})
	case deprovision:
		list = append(list, write, app,
			policy.Statement{Sid: "TrimUnderABoundary", Actions: trimRoles, Resources: b.appIAM(), Conditions: b.underAnyBoundary()},
			policy.Statement{Sid: "DropAppRoles", Actions: dropRoles, Resources: b.appIAM()}, remove)
		list = append(list, look...)
	case readOnly:
		list = append(list,
			policy.Statement{Sid: "SavePlans", Actions: []string{"s3:PutObject"}, Resources: []string{plans}},
			policy.Statement{Sid: "ReadData", Actions: plansRead, Resources: b.unlessPlansReadData(b.publicParameters())},
			policy.Statement{Sid: "OpenData", Actions: []string{"kms:Decrypt"}, Resources: b.unlessPlansReadData(key)},
			policy.Statement{Sid: "DataIsNotRead", Deny: true, Actions: reads, NotResources: b.unlessPlansReadData(b.publicParameters())},
			policy.Statement{Sid: "ObjectsAreNotRead", Deny: true, Actions: []string{"s3:GetObject*"}, NotResources: b.unlessPlansReadData(states, plans, archives)},
			policy.Statement{Sid: "NothingElseIsDecrypted", Deny: true, Actions: []string{"kms:Decrypt"}, NotResources: b.unlessPlansReadData(key)})
		list = append(list, look...)
	}
	// A session that started earlier lives for up to an hour after the trust policy
	// changes. While the runner is disabled, the session may only save its state: an
	// interrupted tool that cannot do so would lose the record of what it made. While
	// the runner is enabled, NotResources is "*", so this statement denies nothing.
	saves := whole(awscdk.Token_AsList(onIf(b.p.isEnabled, []string{"*"}, []string{bucket, bucket + "/*", key}), nil))
	return append(list, policy.Statement{Sid: "NothingWhileDisabled", Deny: true, Actions: []string{"*"}, NotResources: saves})
}

// executionAccess returns the permissions that ECS needs to start the container.
func (b *builder) executionAccess() []policy.Statement {
	return fargate.Starts(*b.log.AttrArn(), "arn:"+b.partition+":ecr:*:*:repository/*")
}

func (b *builder) makeRoles() {
	b.boundary = awsiam.NewCfnManagedPolicy(b.stack, jsii.String("Boundary"), &awsiam.CfnManagedPolicyProps{
		ManagedPolicyName: jsii.String(boundaryName()), Path: jsii.String(b.ownPath()),
		Description:    jsii.String("what no role of the Fairlead runner or of the app that it deploys exceeds"),
		PolicyDocument: policy.Document(b.ceiling()...),
	})
	// IAM refuses to delete the boundary of an existing role. If the stack did not keep the
	// boundary, the deletion of a stack whose app still exists would stop in DELETE_FAILED,
	// after the runner was removed.
	keep(b.boundary)
	fromTasks := fargate.Trust(b.account, b.arn("ecs", "*"))
	b.execution = awsiam.NewCfnRole(b.stack, jsii.String("ExecutionRole"), &awsiam.CfnRoleProps{
		Description: jsii.String("Fairlead: starts the runner's container"), Path: jsii.String(b.ownPath()), AssumeRolePolicyDocument: fromTasks,
		Policies: []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("start"), PolicyDocument: policy.Document(b.executionAccess()...)}},
	})
	// The name is known before the stack exists, so the control plane can expect it.
	// If a person deletes the role and makes another role with this name, the new role
	// has another unique id, and the control plane refuses it.
	b.taskRole = awsiam.NewCfnRole(b.stack, jsii.String("RunnerRole"), &awsiam.CfnRoleProps{
		RoleName:    jsii.String("fairlead-runner-" + *b.p.installID.ValueAsString()),
		Description: jsii.String("Fairlead: identity of the agent; it starts a task for each job, and changes nothing else"),
		Path:        jsii.String(b.ownPath()), AssumeRolePolicyDocument: fromTasks,
	})

	for _, o := range operations {
		b.steps[o.name] = awsiam.NewCfnRole(b.stack, jsii.String(o.title+"StepRole"), &awsiam.CfnRoleProps{
			Description: jsii.String("Fairlead: identity of a task that runs one job; it takes the role that " + o.verb + ", and no other"),
			Path:        jsii.String(b.ownPath()), AssumeRolePolicyDocument: fromTasks,
		})
		b.steps[o.name].CfnOptions().SetCondition(b.p.hasTasks)
	}
	for _, o := range operations {
		props := &awsiam.CfnRoleProps{
			Description: jsii.String("Fairlead: " + o.verb), Path: jsii.String(b.ownPath()), AssumeRolePolicyDocument: b.trust(o.name),
			MaxSessionDuration: jsii.Number(3600), PermissionsBoundary: b.boundary.Ref(),
			Policies: []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String(o.name), PolicyDocument: policy.Document(b.statements(o.name)...)}},
		}
		if o.name == readOnly {
			props.ManagedPolicyArns = &[]any{b.p.readOnlyPolicy.ValueAsString()}
		}
		b.operations[o.name] = awsiam.NewCfnRole(b.stack, jsii.String(o.title+"Role"), props)
	}
}

// takes returns the statements that let an identity take roles of operations.
func (b *builder) takes(roles ...string) []policy.Statement {
	return []policy.Statement{
		{Sid: "TakeRoles", Actions: []string{"sts:AssumeRole"}, Resources: roles,
			Conditions: map[string]map[string]any{"StringEquals": {"sts:ExternalId": *b.p.externalID.ValueAsString()}}},
		{Sid: "TagSessions", Actions: []string{"sts:TagSession"}, Resources: roles},
	}
}

// agentTasks returns the statements that let the agent start a task for each job. The
// agent cannot register a task definition, so it cannot choose another image. It passes
// only the roles of steps, and takes none.
func (b *builder) agentTasks() []policy.Statement {
	cluster := *b.cluster.AttrArn()
	tasks := b.arn("ecs", "task/"+*b.cluster.Ref()+"/*")
	inCluster := map[string]map[string]any{"ArnEquals": {"ecs:cluster": cluster}}
	passed := []string{*b.execution.AttrArn()}
	for _, o := range operations {
		passed = append(passed, *b.steps[o.name].AttrArn())
	}
	started := []string{b.arn("ecs", "task-definition/"+b.family()+"-step:*")}
	for i := range maxImages {
		started = append(started, b.arn("ecs", "task-definition/"+b.family()+scriptFamily(i)+":*"))
	}
	return []policy.Statement{
		{Sid: "StartSteps", Actions: []string{"ecs:RunTask"}, Resources: started, Conditions: inCluster},
		{Sid: "TagSteps", Actions: []string{"ecs:TagResource"}, Resources: []string{tasks},
			Conditions: map[string]map[string]any{"StringEquals": {"ecs:CreateAction": "RunTask"}}},
		{Sid: "WatchSteps", Actions: []string{"ecs:DescribeTasks", "ecs:StopTask"}, Resources: []string{tasks}, Conditions: inCluster},
		{Sid: "FindSteps", Actions: []string{"ecs:ListTasks"}, Resources: []string{"*"}, Conditions: inCluster}, // the action has no resource for tasks on Fargate
		{Sid: "PassStepRoles", Actions: []string{"iam:PassRole"}, Resources: passed,
			Conditions: map[string]map[string]any{"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}},
		{Sid: "ReadOutput", Actions: []string{"logs:GetLogEvents"}, Resources: []string{b.arn("logs", "log-group:"+*b.log.Ref()+":log-stream:step/*")}},
	}
}

// agentAccess makes the policies of the agent and of the steps. They are apart from the
// roles, because they name the roles of operations, whose trusts name these roles. The
// agent has one of two policies: with tasks it starts them, without tasks it takes the
// roles of all operations for its processes.
func (b *builder) agentAccess() {
	var all []string
	for _, o := range operations {
		all = append(all, *b.operations[o.name].AttrArn())
		own := awsiam.NewCfnRolePolicy(b.stack, jsii.String(o.title+"StepRolePolicy"), &awsiam.CfnRolePolicyProps{
			RoleName: b.steps[o.name].Ref(), PolicyName: jsii.String("operation"), PolicyDocument: policy.Document(b.takes(*b.operations[o.name].AttrArn())...)})
		own.CfnOptions().SetCondition(b.p.hasTasks)
	}
	readMode := policy.Statement{Sid: "ReadMode", Actions: []string{"ssm:GetParameter"}, Resources: []string{b.modeARN()}}
	of := func(statements []policy.Statement) any { return policy.Document(statements...)["Statement"] }
	b.taskPolicy = awsiam.NewCfnRolePolicy(b.stack, jsii.String("RunnerRolePolicy"), &awsiam.CfnRolePolicyProps{
		RoleName: b.taskRole.Ref(), PolicyName: jsii.String("jobs"),
		PolicyDocument: map[string]any{"Version": "2012-10-17", "Statement": onIf(b.p.hasTasks, of(append(b.agentTasks(), readMode)), of(append(b.takes(all...), readMode)))},
	})
}

// trust returns the trust policy that lets only a step of the operation assume its role:
// with the install's external id, in a session with the name and the tags of a job, and
// not while the runner is disabled. If steps are processes, the agent's role is theirs.
func (b *builder) trust(operation string) map[string]any {
	step := policy.AWS(*awscdk.Token_AsString(onIf(b.p.hasTasks, b.steps[operation].AttrArn(), b.taskRole.AttrArn()), nil))
	document := policy.Document(
		policy.Statement{Sid: "StepOfAJob", Principal: step, Actions: []string{"sts:AssumeRole"},
			Conditions: map[string]map[string]any{
				"StringEquals": {"sts:ExternalId": *b.p.externalID.ValueAsString(), "aws:RequestTag/" + tagInstall: *b.p.installID.ValueAsString()},
				"StringLike":   {"sts:RoleSessionName": "job_*", "aws:RequestTag/" + tagJob: "job_*"},
			}},
		policy.Statement{Sid: "TaggedByTheJob", Principal: step, Actions: []string{"sts:TagSession"},
			Conditions: map[string]map[string]any{
				"StringEquals":              {"aws:RequestTag/" + tagInstall: *b.p.installID.ValueAsString()},
				"StringLike":                {"aws:RequestTag/" + tagJob: "job_*"},
				"ForAllValues:StringEquals": {"aws:TagKeys": []string{tagInstall, tagJob}},
			}},
	)
	for _, s := range document["Statement"].([]any) {
		s.(map[string]any)["Effect"] = onIf(b.p.isEnabled, "Allow", "Deny")
	}
	return document
}

// Tags of an operation's session.
const (
	tagInstall = "fairlead-install"
	tagJob     = "fairlead-job"
)

// tagResource is the tag that the boundary requires on a resource of the install. The
// runner makes it a default tag of the AWS provider, in runner/internal/awsrole.
const tagResource = "fairlead_install"
