package runnerstack

import (
	"fmt"
	"maps"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/stackversion"
)

// environment returns the environment of the container: the runner's variables that
// differ from their defaults, and all variables of this stack.
func (b *builder) environment() (map[string]string, error) {
	var own []*string
	for _, operation := range awsaction.Operations() {
		own = append(own, jsii.String(operation+"="+*awscdk.Fn_Join(jsii.String(","), b.p.operationActions[operation].ValueAsList())))
	}
	environ, err := config.Environ(&config.RunnerStack{
		Install: *b.p.installID.ValueAsString(), ExternalID: *b.p.externalID.ValueAsString(), TrustedKeys: *b.p.trustedKeys.ValueAsString(),
		StackID: *awscdk.Aws_STACK_ID(), StackVersion: stackversion.Current(), Image: *b.p.image.ValueAsString(),
		StateBucket: b.bucketName(), StateKey: b.keyARN(),
		// A rule of the template permits no new key for an existing bucket.
		StatesMade: *awscdk.Token_AsString(onIf(b.p.newBucket, onIf(b.p.newKey, "bucket,key", "bucket"), ""), nil),
		Images:     *b.images.AttrRepositoryUri(), Artifacts: *b.artifacts.AttrRepositoryUri(),
		RoleProvision: *b.operations[provision].AttrArn(), RoleDeploy: *b.operations[deploy].AttrArn(),
		RoleDeprovision: *b.operations[deprovision].AttrArn(), RoleReadOnly: *b.operations[readOnly].AttrArn(),
		StepRoleProvision: b.stepRole(provision), StepRoleDeploy: b.stepRole(deploy), StepRoleDeprovision: b.stepRole(deprovision), StepRoleReadOnly: b.stepRole(readOnly),
		AppActions:       *awscdk.Fn_Join(jsii.String(","), b.p.appActions.ValueAsList()),
		OperationActions: *awscdk.Fn_Join(jsii.String(";"), &own),
		Boundary:         *b.boundary.Ref(),
	})
	if err != nil {
		return nil, err
	}
	runner, err := fargate.Environment(config.Runner{URL: *b.p.controlPlaneURL.ValueAsString(), RunnerID: *b.p.runnerID.ValueAsString(), Config: b.agentFile(),
		ProviderMirror: "s3://" + b.bucketName() + "/" + providerPrefix,
		// The task reads its mode from the parameter. A mode in the environment would replace the
		// task, and so interrupt its jobs, with each change.
		ModeParameter: b.modeName()})
	maps.Copy(environ, runner)
	return environ, err
}

// makeCluster makes the cluster of the runner, which the boundary names.
func (b *builder) makeCluster() {
	b.cluster = fargate.Cluster(b.stack, "Cluster")
	// CloudFormation would choose a name from the stack's, which can be long, and a boundary
	// has few characters.
	b.cluster.SetClusterName(jsii.String(b.family()))
	role := awsiam.NewCfnServiceLinkedRole(b.stack, jsii.String("EcsServiceRole"), &awsiam.CfnServiceLinkedRoleProps{
		AwsServiceName: jsii.String("ecs.amazonaws.com"), Description: jsii.String("lets ECS manage network interfaces of tasks"),
	})
	role.CfnOptions().SetCondition(b.p.newServiceRole)
	// IAM does not delete the role while any cluster of the account uses it.
	role.ApplyRemovalPolicy(awscdk.RemovalPolicy_RETAIN, nil)
	// Without the role, ECS makes it at the first cluster and often fails, because the new
	// role is not visible at once. The tag makes the cluster wait for the role and for the
	// network, which takes long enough.
	b.cluster.Tags().SetTag(jsii.String("fairlead-service-linked-role"), awscdk.Token_AsString(onIf(b.p.newServiceRole,
		awscdk.Fn_Join(jsii.String(" "), &[]*string{role.Ref(), awscdk.Token_AsString(b.network.way, nil)}), "exists"), nil), nil, nil)
}

// keepForTasks makes CloudFormation delete the cluster before the roles of jobs and their
// network. The tasks of jobs outlive the agent, and ECS deletes no cluster with an active task:
// the deletion of the stack fails there, and a running job keeps what it needs to end and to
// save its state.
func (b *builder) keepForTasks() {
	for _, o := range operations {
		b.cluster.AddResourceDependency(b.operations[o.name], nil)
	}
	// A tag, because CloudFormation supports no conditional dependency. It takes the first value
	// of the list, because the others can be too long for a tag, or have other characters.
	needed := []any{"kept", b.network.way}
	for _, o := range operations {
		needed = append(needed, map[string]any{"Ref": o.title + "StepRolePolicy"})
	}
	b.cluster.Tags().SetTag(jsii.String("fairlead-tasks"), awscdk.Token_AsString(onIf(b.p.hasTasks, map[string]any{"Fn::Select": []any{0, needed}}, "none"), nil), nil, nil)
}

// stepRole returns the ARN of the task role of an operation's step; "" if steps are processes.
func (b *builder) stepRole(operation string) string {
	return *awscdk.Token_AsString(onIf(b.p.hasTasks, b.steps[operation].AttrArn(), ""), nil)
}

// maxTasks is how many jobs have a task at once. A new account may run Fargate tasks with
// 6 CPUs at once.
const maxTasks = 10

// agentFile returns the agent's file: each step has a task of its own, or is a process. The
// file is final, because the control plane must not choose a job's image, role or network.
// With processes it bounds the concurrency by the memory of the task. The control plane still
// gives the runner at most the number of jobs that its own configuration names.
func (b *builder) agentFile() string {
	list := func(l *[]*string) string { return `["` + *awscdk.Fn_Join(jsii.String(`","`), l) + `"]` }
	tasks := fmt.Sprintf(`{"final":true,"runner_configuration":{"type":"aws-ecs","concurrency":%d,"job":{"region":%q,"cluster":%q,"subnets":%s,"security_groups":["%s"],"public_ip":%s,`+
		`"task_definition":"%s"%s,"log_group":%q%s,"pass_env":["AWS_REGION","AWS_DEFAULT_REGION"]}},"secrets":%s%s%s}`,
		maxTasks, b.region, *b.cluster.AttrArn(), list(awscdk.Token_AsList(b.network.subnets, nil)), *b.network.group.AttrGroupId(),
		*awscdk.Token_AsString(onIf(b.p.needsPublicIP, "true", "false"), nil), *b.stepTask.Ref(), b.imagesJSON(), *b.log.Ref(),
		*awscdk.Token_AsString(onIf(b.p.keepsWarm, `,"warm_tasks":`+*b.p.warmTasks.ValueAsString(), ""), nil), b.secretsJSON(), b.policyJSON(), b.seedJSON())
	processes := fmt.Sprintf(`{"final":true,"runner_configuration":{"type":"local","concurrency":%s}}`, b.ofSize("Processes"))
	return *awscdk.Token_AsString(onIf(b.p.hasTasks, tasks, processes), nil)
}

// makeStepTask makes the task definition of steps in the runner's image. The agent may run its
// family and those of makeScriptTasks, and no other.
func (b *builder) makeStepTask() {
	b.stepTask = b.stepDefinition("-step", *b.p.image.ValueAsString(), "").Definition(b.stack, "StepTask")
	b.stepTask.CfnOptions().SetCondition(b.p.hasTasks)
}

func (b *builder) family() string { return "fairlead-" + *b.p.installID.ValueAsString() }

// service makes the service of the runner: one task, arm64, image by digest.
func (b *builder) service() error {
	environment, err := b.environment()
	if err != nil {
		return fmt.Errorf("environment of the runner: %w", err)
	}
	small := fargate.Sizes()["Small"]
	agentSize := func(own, of string) string { return *awscdk.Token_AsString(onIf(b.p.hasTasks, own, b.ofSize(of)), nil) }
	b.task = fargate.Task{Family: b.family(), Image: *b.p.image.ValueAsString(), Size: fargate.Size{CPU: agentSize(small.CPU, "Cpu"), Memory: agentSize(small.Memory, "Memory")},
		Environment: environment, Role: b.taskRole, Execution: b.execution, Log: b.log}.Definition(b.stack, "RunnerTask")
	b.runner = fargate.Service{Cluster: b.cluster, Task: b.task, Count: awscdk.Token_AsNumber(onIf(b.p.isEnabled, 1, 0)),
		Subnets: awscdk.Token_AsList(b.network.subnets, nil), Group: b.network.group, PublicIP: awscdk.Token_AsString(b.network.publicIP, nil),
		// The tags make the service wait for its routes and for the access to secrets:
		// CloudFormation supports no conditional dependency.
		Tags: &[]*awscdk.CfnTag{{Key: jsii.String("fairlead-network"), Value: awscdk.Token_AsString(b.network.way, nil)},
			{Key: jsii.String("fairlead-secrets"), Value: awscdk.Token_AsString(onIf(b.p.hasSecrets, b.stepSecrets.Ref(), "none"), nil)},
			{Key: jsii.String("fairlead-policy"), Value: awscdk.Token_AsString(onIf(b.p.hasPolicy, b.stepPolicy.Ref(), "none"), nil)},
			{Key: jsii.String("fairlead-install-key"), Value: awscdk.Token_AsString(onIf(b.p.hasTasks, b.seedAccess.Ref(), "none"), nil)}}}.Make(b.stack, "RunnerService")
	b.runner.AddResourceDependency(b.taskPolicy, nil)
	b.runner.AddResourceDependency(b.mode, nil)
	return nil
}

func (b *builder) ofSize(of string) string {
	return *b.p.sizes.FindInMap(b.p.size.ValueAsString(), jsii.String(of), nil)
}
