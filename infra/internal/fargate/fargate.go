// Package fargate writes what AWS is told of a runner that ECS keeps running on
// Fargate, so that one is confined alike in the customer's stack and in the
// vendor's: who it is, what it may write, and how it is replaced.
package fargate

import (
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
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

// Size is a pair of CPU, in 1/1024 of one, and memory, in MiB. Fargate knows few.
type Size struct{ CPU, Memory string }

// Sizes returns the sizes that a runner may have, by name.
func Sizes() map[string]Size {
	return map[string]Size{"Small": {"256", "512"}, "Medium": {"512", "1024"}, "Large": {"1024", "2048"}, "XLarge": {"2048", "4096"}}
}

// Environment returns what a runner is told that has the identity of its task:
// all of r that differs from its default, and where it is.
func Environment(r config.Runner) (map[string]string, error) {
	r.Identity, r.Data, r.DrainFor, r.LogLevel = "aws-iam", dataFolder, drainFor, "info"
	r.ShareLog = true // said, so that who installs it reads it in the template
	environ, err := config.Environ(&r)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(environ, func(_, value string) bool { return value == "" || value == "0" }) // left to its default
	return environ, nil
}

// Trust lets ECS give a role to the tasks of the account, which are tasks, and to
// nobody else's.
func Trust(account, tasks string) map[string]any {
	return policy.Trust("ecs-tasks.amazonaws.com", map[string]map[string]any{
		"StringEquals": {"aws:SourceAccount": account},
		"ArnLike":      {"aws:SourceArn": tasks},
	})
}

// Starts is what ECS needs to start the container: to pull from the repositories,
// and to write the log.
func Starts(log, repositories string) []policy.Statement {
	return []policy.Statement{
		{Sid: "RunnerLog", Actions: []string{"logs:CreateLogStream", "logs:PutLogEvents"}, Resources: []string{log}},
		{Sid: "PullImage", Actions: []string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"}, Resources: []string{repositories}},
		{Sid: "RegistryLogin", Actions: []string{"ecr:GetAuthorizationToken"}, Resources: []string{"*"}},
	}
}

// Cluster makes the cluster of one runner alone.
func Cluster(stack awscdk.Stack, id string) awsecs.CfnCluster {
	return awsecs.NewCfnCluster(stack, jsii.String(id), &awsecs.CfnClusterProps{
		ClusterSettings: []*awsecs.CfnCluster_ClusterSettingsProperty{{Name: jsii.String("containerInsights"), Value: jsii.String("disabled")}},
	})
}

// Task is a runner as ECS starts it.
type Task struct {
	Family          string
	Image           string // for arm64, by digest
	Size            Size
	Environment     map[string]string
	Role, Execution awsiam.CfnRole
	Log             awslogs.CfnLogGroup
}

// Definition makes the definition of the task: without root, with a file system
// of which it writes two folders.
func (t Task) Definition(stack awscdk.Stack, id string) awsecs.CfnTaskDefinition {
	var variables []*awsecs.CfnTaskDefinition_KeyValuePairProperty
	for _, name := range slices.Sorted(maps.Keys(t.Environment)) {
		variables = append(variables, &awsecs.CfnTaskDefinition_KeyValuePairProperty{Name: jsii.String(name), Value: jsii.String(t.Environment[name])})
	}
	var volumes []*awsecs.CfnTaskDefinition_VolumeProperty
	var mounts []*awsecs.CfnTaskDefinition_MountPointProperty
	for _, v := range []struct{ name, path string }{{"data", dataFolder}, {"temp", tempFolder}} {
		volumes = append(volumes, &awsecs.CfnTaskDefinition_VolumeProperty{Name: jsii.String(v.name)})
		mounts = append(mounts, &awsecs.CfnTaskDefinition_MountPointProperty{SourceVolume: jsii.String(v.name), ContainerPath: jsii.String(v.path), ReadOnly: jsii.Bool(false)})
	}
	return awsecs.NewCfnTaskDefinition(stack, jsii.String(id), &awsecs.CfnTaskDefinitionProps{
		Family: jsii.String(t.Family), RequiresCompatibilities: jsii.Strings("FARGATE"), NetworkMode: jsii.String("awsvpc"),
		Cpu: jsii.String(t.Size.CPU), Memory: jsii.String(t.Size.Memory),
		RuntimePlatform:  &awsecs.CfnTaskDefinition_RuntimePlatformProperty{CpuArchitecture: jsii.String("ARM64"), OperatingSystemFamily: jsii.String("LINUX")},
		ExecutionRoleArn: t.Execution.AttrArn(), TaskRoleArn: t.Role.AttrArn(),
		Volumes: volumes,
		ContainerDefinitions: []*awsecs.CfnTaskDefinition_ContainerDefinitionProperty{{
			Name: jsii.String("runner"), Image: jsii.String(t.Image), Essential: jsii.Bool(true), Command: jsii.Strings("agent"),
			User: jsii.String(user), ReadonlyRootFilesystem: jsii.Bool(true), Privileged: jsii.Bool(false),
			LinuxParameters: &awsecs.CfnTaskDefinition_LinuxParametersProperty{InitProcessEnabled: jsii.Bool(true)},
			StopTimeout:     jsii.Number(stopTimeout.Seconds()), Environment: variables, MountPoints: mounts,
			LogConfiguration: &awsecs.CfnTaskDefinition_LogConfigurationProperty{LogDriver: jsii.String("awslogs"), Options: map[string]string{
				"awslogs-group": *t.Log.Ref(), "awslogs-region": *stack.Region(), "awslogs-stream-prefix": "runner",
			}},
		}},
	})
}

// Service keeps a task running.
type Service struct {
	Cluster  awsecs.CfnCluster
	Task     awsecs.CfnTaskDefinition
	Count    *float64
	Subnets  *[]*string
	Group    awsec2.CfnSecurityGroup
	PublicIP *string // ENABLED or DISABLED
	Tags     *[]*awscdk.CfnTag
}

// Make makes the service. No shell can be opened in its tasks.
func (s Service) Make(stack awscdk.Stack, id string) awsecs.CfnService {
	return awsecs.NewCfnService(stack, jsii.String(id), &awsecs.CfnServiceProps{
		Cluster: s.Cluster.Ref(), TaskDefinition: s.Task.Ref(), LaunchType: jsii.String("FARGATE"), PlatformVersion: jsii.String("LATEST"),
		DesiredCount: s.Count, EnableExecuteCommand: jsii.Bool(false), PropagateTags: jsii.String("SERVICE"), Tags: s.Tags,
		// A new runner starts while the old one drains. An image that does not start is taken back.
		DeploymentConfiguration: &awsecs.CfnService_DeploymentConfigurationProperty{
			MinimumHealthyPercent: jsii.Number(100), MaximumPercent: jsii.Number(200),
			DeploymentCircuitBreaker: &awsecs.CfnService_DeploymentCircuitBreakerProperty{Enable: jsii.Bool(true), Rollback: jsii.Bool(true)},
		},
		NetworkConfiguration: &awsecs.CfnService_NetworkConfigurationProperty{AwsvpcConfiguration: &awsecs.CfnService_AwsVpcConfigurationProperty{
			Subnets: s.Subnets, SecurityGroups: &[]*string{s.Group.AttrGroupId()}, AssignPublicIp: s.PublicIP,
		}},
	})
}
