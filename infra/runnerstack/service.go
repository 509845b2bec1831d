package runnerstack

import (
	"fmt"
	"maps"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
	"github.com/fairlead/fairlead/pkg/config"
)

// environment returns the environment of the container: the runner's variables that
// differ from their defaults, and all variables of this stack.
func (b *builder) environment() (map[string]string, error) {
	environ, err := config.Environ(&config.RunnerStack{
		Install: *b.p.installID.ValueAsString(), ExternalID: *b.p.externalID.ValueAsString(), TrustedKeys: *b.p.trustedKeys.ValueAsString(),
		StackID: *awscdk.Aws_STACK_ID(), StackVersion: Version, Image: *b.p.image.ValueAsString(),
		StateBucket: *b.state.Ref(), StateKey: *b.stateKey.AttrArn(),
		Images: *b.images.AttrRepositoryUri(), Artifacts: *b.artifacts.AttrRepositoryUri(),
		RoleProvision: *b.operations[provision].AttrArn(), RoleDeploy: *b.operations[deploy].AttrArn(),
		RoleDeprovision: *b.operations[deprovision].AttrArn(), RoleReadOnly: *b.operations[readOnly].AttrArn(),
		RoleBreakGlass: *awscdk.Token_AsString(onIf(b.p.hasBreakGlass, b.operations[breakGlass].AttrArn(), ""), nil),
		Boundary:       *b.boundary.Ref(),
	})
	if err != nil {
		return nil, err
	}
	runner, err := fargate.Environment(config.Runner{URL: *b.p.controlPlaneURL.ValueAsString(), RunnerID: *b.p.runnerID.ValueAsString(),
		Mode: *awscdk.Token_AsString(onIf(b.p.isPaused, "paused", "enabled"), nil)})
	maps.Copy(environ, runner)
	return environ, err
}

// makeCluster makes the cluster of the runner, which the boundary names.
func (b *builder) makeCluster() { b.cluster = fargate.Cluster(b.stack, "Cluster") }

// service makes the service of the runner: one task, arm64, image by digest.
func (b *builder) service() error {
	environment, err := b.environment()
	if err != nil {
		return fmt.Errorf("environment of the runner: %w", err)
	}
	b.task = fargate.Task{Family: "fairlead-" + *b.p.installID.ValueAsString(), Image: *b.p.image.ValueAsString(), Size: fargate.Size{CPU: b.ofSize("Cpu"), Memory: b.ofSize("Memory")},
		Environment: environment, Role: b.taskRole, Execution: b.execution, Log: b.log}.Definition(b.stack, "RunnerTask")
	b.runner = fargate.Service{Cluster: b.cluster, Task: b.task, Count: awscdk.Token_AsNumber(onIf(b.p.isEnabled, 1, 0)),
		Subnets: awscdk.Token_AsList(b.network.subnets, nil), Group: b.network.group, PublicIP: awscdk.Token_AsString(b.network.publicIP, nil),
		// The tag makes the service wait for its routes: CloudFormation supports no
		// conditional dependency.
		Tags: &[]*awscdk.CfnTag{{Key: jsii.String("fairlead-network"), Value: awscdk.Token_AsString(b.network.way, nil)}}}.Make(b.stack, "RunnerService")
	b.runner.AddResourceDependency(b.taskPolicy, nil)
	return nil
}

func (b *builder) ofSize(of string) string {
	return *b.p.sizes.FindInMap(b.p.size.ValueAsString(), jsii.String(of), nil)
}
