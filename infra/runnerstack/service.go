package runnerstack

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/pkg/config"
)

// The folders that the runner writes; the rest of its file system is read-only.
const (
	dataFolder = "/var/lib/fairlead-runner"
	tempFolder = "/tmp"
)

// Fargate kills a container 120 s after SIGTERM at the latest. The runner
// interrupts its tools before that, so that they can save their states.
const (
	stopTimeout = 120 * time.Second
	drainFor    = 80 * time.Second
)

// The user of the image, who is not root.
const user = "65532:65532"

// environment is what the container is told: what the runner declares that
// differs from its default, and all that it declares for this stack.
func (b *builder) environment() (map[string]string, error) {
	runner, err := config.Environ(&config.Runner{
		URL: *b.p.controlPlaneURL.ValueAsString(), Identity: "aws-iam", RunnerID: *b.p.runnerID.ValueAsString(), Data: dataFolder, DrainFor: drainFor, LogLevel: "info",
		Mode:     *awscdk.Token_AsString(onIf(b.p.isPaused, "paused", "enabled"), nil),
		ShareLog: true, // said, so that the customer reads it in the template
	})
	if err != nil {
		return nil, err
	}
	stack := &config.RunnerStack{
		Install: *b.p.installID.ValueAsString(), ExternalID: *b.p.externalID.ValueAsString(), TrustedKeys: *b.p.trustedKeys.ValueAsString(),
		StackID: *awscdk.Aws_STACK_ID(), StackVersion: Version, Image: *b.p.image.ValueAsString(),
		StateBucket: *b.state.Ref(), StateKey: *b.stateKey.AttrArn(),
		Images: *b.images.AttrRepositoryUri(), Artifacts: *b.artifacts.AttrRepositoryUri(),
		RoleProvision: *b.operations[provision].AttrArn(), RoleDeploy: *b.operations[deploy].AttrArn(),
		RoleDeprovision: *b.operations[deprovision].AttrArn(), RoleReadOnly: *b.operations[readOnly].AttrArn(),
		RoleBreakGlass: *awscdk.Token_AsString(onIf(b.p.hasBreakGlass, b.operations[breakGlass].AttrArn(), ""), nil),
		Boundary:       *b.boundary.Ref(),
	}
	environ, err := config.Environ(stack)
	if err != nil {
		return nil, err
	}
	for name, value := range runner {
		if value != "" && value != "0" { // left to its default
			environ[name] = value
		}
	}
	return environ, nil
}

// makeCluster makes the cluster of the runner alone; the boundary names it.
func (b *builder) makeCluster() {
	b.cluster = awsecs.NewCfnCluster(b.stack, jsii.String("Cluster"), &awsecs.CfnClusterProps{
		ClusterSettings: []*awsecs.CfnCluster_ClusterSettingsProperty{{Name: jsii.String("containerInsights"), Value: jsii.String("disabled")}},
	})
}

// service runs the runner: one task, arm64, by digest.
func (b *builder) service() error {
	environment, err := b.environment()
	if err != nil {
		return fmt.Errorf("environment of the runner: %w", err)
	}
	var variables []*awsecs.CfnTaskDefinition_KeyValuePairProperty
	for _, name := range sortedKeys(environment) {
		variables = append(variables, &awsecs.CfnTaskDefinition_KeyValuePairProperty{Name: jsii.String(name), Value: jsii.String(environment[name])})
	}
	var volumes []*awsecs.CfnTaskDefinition_VolumeProperty
	var mounts []*awsecs.CfnTaskDefinition_MountPointProperty
	for _, v := range []struct{ name, path string }{{"data", dataFolder}, {"temp", tempFolder}} {
		volumes = append(volumes, &awsecs.CfnTaskDefinition_VolumeProperty{Name: jsii.String(v.name)})
		mounts = append(mounts, &awsecs.CfnTaskDefinition_MountPointProperty{SourceVolume: jsii.String(v.name), ContainerPath: jsii.String(v.path), ReadOnly: jsii.Bool(false)})
	}
	b.task = awsecs.NewCfnTaskDefinition(b.stack, jsii.String("RunnerTask"), &awsecs.CfnTaskDefinitionProps{
		Family: jsii.String("fairlead-" + *b.p.installID.ValueAsString()), RequiresCompatibilities: jsii.Strings("FARGATE"), NetworkMode: jsii.String("awsvpc"),
		Cpu: b.ofSize("Cpu"), Memory: b.ofSize("Memory"),
		RuntimePlatform:  &awsecs.CfnTaskDefinition_RuntimePlatformProperty{CpuArchitecture: jsii.String("ARM64"), OperatingSystemFamily: jsii.String("LINUX")},
		ExecutionRoleArn: b.execution.AttrArn(), TaskRoleArn: b.taskRole.AttrArn(),
		Volumes: volumes,
		ContainerDefinitions: []*awsecs.CfnTaskDefinition_ContainerDefinitionProperty{{
			Name: jsii.String("runner"), Image: b.p.image.ValueAsString(), Essential: jsii.Bool(true), Command: jsii.Strings("agent"),
			User: jsii.String(user), ReadonlyRootFilesystem: jsii.Bool(true), Privileged: jsii.Bool(false),
			LinuxParameters: &awsecs.CfnTaskDefinition_LinuxParametersProperty{InitProcessEnabled: jsii.Bool(true)},
			StopTimeout:     jsii.Number(stopTimeout.Seconds()), Environment: variables, MountPoints: mounts,
			LogConfiguration: &awsecs.CfnTaskDefinition_LogConfigurationProperty{LogDriver: jsii.String("awslogs"), Options: map[string]string{
				"awslogs-group": *b.log.Ref(), "awslogs-region": b.region, "awslogs-stream-prefix": "runner",
			}},
		}},
	})
	b.runner = awsecs.NewCfnService(b.stack, jsii.String("RunnerService"), &awsecs.CfnServiceProps{
		Cluster: b.cluster.Ref(), TaskDefinition: b.task.Ref(), LaunchType: jsii.String("FARGATE"), PlatformVersion: jsii.String("LATEST"),
		DesiredCount: awscdk.Token_AsNumber(onIf(b.p.isEnabled, 1, 0)), EnableExecuteCommand: jsii.Bool(false), PropagateTags: jsii.String("SERVICE"),
		// The tag makes the service wait for its way out; a dependency cannot be had under a condition.
		Tags: &[]*awscdk.CfnTag{{Key: jsii.String("fairlead-network"), Value: awscdk.Token_AsString(b.network.way, nil)}},
		// A new runner starts while the old one drains. An image that does not start is taken back.
		DeploymentConfiguration: &awsecs.CfnService_DeploymentConfigurationProperty{
			MinimumHealthyPercent: jsii.Number(100), MaximumPercent: jsii.Number(200),
			DeploymentCircuitBreaker: &awsecs.CfnService_DeploymentCircuitBreakerProperty{Enable: jsii.Bool(true), Rollback: jsii.Bool(true)},
		},
		NetworkConfiguration: &awsecs.CfnService_NetworkConfigurationProperty{AwsvpcConfiguration: &awsecs.CfnService_AwsVpcConfigurationProperty{
			Subnets: awscdk.Token_AsList(b.network.subnets, nil), SecurityGroups: &[]*string{b.network.group.AttrGroupId()},
			AssignPublicIp: awscdk.Token_AsString(b.network.publicIP, nil),
		}},
	})
	b.runner.AddResourceDependency(b.taskPolicy, nil)
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func (b *builder) ofSize(of string) *string {
	return b.p.sizes.FindInMap(b.p.size.ValueAsString(), jsii.String(of), nil)
}
