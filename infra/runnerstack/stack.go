// Package runnerstack defines the stack that a customer installs: one self-contained
// CloudFormation template with parameters. It makes the runner's service and the roles
// that the runner uses.
//
// The template needs no bootstrap and has no assets, no functions and no secret: AWS generates the
// seed of the install keys in the account. When
// the runner starts, ECS downloads only the runner's image, by digest. The runner
// connects to the control plane with the settings from the stack.
package runnerstack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecr"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsssm"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/pkg/stackversion"
)

// ID is the template's name: the synthesis writes <ID>.template.json.
const ID = "fairlead-runner"

// builder holds the parts of the stack during its construction.
type builder struct {
	stack                      awscdk.Stack
	partition, region, account string
	p                          parameters

	boundary    awsiam.CfnManagedPolicy
	taskRole    awsiam.CfnRole
	execution   awsiam.CfnRole
	operations  map[string]awsiam.CfnRole
	steps       map[string]awsiam.CfnRole // of the operations' steps, each in a task of its own
	stateKey    awskms.CfnKey
	state       awss3.CfnBucket
	images      awsecr.CfnRepository
	artifacts   awsecr.CfnRepository
	log         awslogs.CfnLogGroup
	flowLog     awslogs.CfnLogGroup
	cluster     awsecs.CfnCluster
	network     network
	task        awsecs.CfnTaskDefinition
	stepTask    awsecs.CfnTaskDefinition
	scriptTasks []awsecs.CfnTaskDefinition // of steps in the images of scripts
	runner      awsecs.CfnService
	taskPolicy  awsiam.CfnRolePolicy
	mode        awsssm.CfnParameter

	stepSecrets awsiam.CfnPolicy
	stepPolicy  awsiam.CfnPolicy
	seed        awssecretsmanager.CfnSecret
	seedAccess  awsiam.CfnPolicy
}

// New adds the runner stack to the scope.
func New(scope constructs.Construct) (awscdk.Stack, error) {
	stack := awscdk.NewStack(scope, jsii.String(ID), &awscdk.StackProps{
		Description:        jsii.String("Fairlead runner, template version " + stackversion.Current() + ": runs a vendor's deployments in this account, with a role for each kind of operation"),
		Synthesizer:        awscdk.NewBootstraplessSynthesizer(nil),
		AnalyticsReporting: jsii.Bool(false),
	})
	b := &builder{stack: stack, partition: *awscdk.Aws_PARTITION(), region: *stack.Region(), account: *stack.Account(), operations: map[string]awsiam.CfnRole{}, steps: map[string]awsiam.CfnRole{}}
	b.parameters()
	b.makeNetwork()
	b.storage()
	b.makeCluster()
	b.makeRoles()
	b.makeFlowLogs()
	b.makeStepTask()
	b.makeScriptTasks()
	b.agentAccess()
	b.keepForTasks()
	b.makeSecretAccess()
	b.makePolicyAccess()
	b.makeSeed()
	b.makeMode()
	if err := b.service(); err != nil {
		return nil, err
	}
	b.outputs()
	return stack, b.suppress()
}

func (b *builder) arn(service, resource string) string {
	return "arn:" + b.partition + ":" + service + ":" + b.region + ":" + b.account + ":" + resource
}

// onIf returns a reference. If the condition holds, the reference resolves to the
// parameter then, otherwise to the parameter otherwise.
func onIf(condition awscdk.CfnCondition, then, otherwise any) awscdk.IResolvable {
	return awscdk.Fn_ConditionIf(condition.LogicalId(), then, otherwise).(awscdk.IResolvable)
}

func (b *builder) outputs() {
	output := func(id, doc, value string) awscdk.CfnOutput {
		return awscdk.NewCfnOutput(b.stack, jsii.String(id), &awscdk.CfnOutputProps{Description: jsii.String(doc), Value: jsii.String(value)})
	}
	output("RunnerRoleArn", "identity of the runner at the control plane", *b.taskRole.AttrArn())
	output("RunnerRoleId", "unique id of that role: a new role with the same name has another", *b.taskRole.AttrRoleId())
	output("StateBucketName", "Terraform states and saved plans; kept when the stack is deleted", b.bucketName())
	output("StateKeyArn", "key of the state bucket; kept when the stack is deleted", b.keyARN())
	output("InstallKeySecret", "secret with the seed of the install keys; kept when the stack is deleted; empty: there is none", *awscdk.Token_AsString(onIf(b.p.hasTasks, b.seedName(), ""), nil))
	existed := func(made awscdk.CfnCondition) string {
		return *awscdk.Token_AsString(onIf(made, "", "; it existed before this stack: keep it unless an earlier stack of this install made it"), nil)
	}
	serviceRole := *awscdk.Token_AsString(onIf(b.p.newServiceRole, ", AWSServiceRoleForECS (IAM role of ECS: each cluster of the account uses it, so keep it; a new stack needs EcsServiceLinkedRole=Exists)", ""), nil)
	seed := *awscdk.Token_AsString(onIf(b.p.hasTasks, b.seedName()+" (secret: the seed of the install keys, the only way to read the encrypted secrets"+existed(b.p.newSeed)+"), ", ""), nil)
	output("RetainedResources", "what stays in the account when this stack is deleted; remove it only after the vendor has torn the app down",
		b.bucketName()+" (S3 bucket: the only record of what the app made"+existed(b.p.newBucket)+"), "+b.keyARN()+" (KMS key: opens the bucket"+existed(b.p.newKey)+"), "+
			*b.boundary.Ref()+" (IAM policy: boundary of the app's roles), "+seed+b.iamARN("role"+b.appPath()+"*")+" (roles that the app made)"+serviceRole)
	output("BoundaryArn", "permissions boundary of every role that the app makes; kept when the stack is deleted", *b.boundary.Ref())
	output("WhatTheAppUses", "what the app may use, as the vendor describes it; the parameter AppActions decides", *b.p.appUses.ValueAsString())
	output("RunnerLogGroup", "the runner's own log", *b.log.Ref())
	output("TemplateVersion", "of the stack", stackversion.Current())
	for _, o := range operations {
		output(o.title+"RoleArn", "role that "+o.verb, *b.operations[o.name].AttrArn())
	}
}
