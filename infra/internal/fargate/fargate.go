// Package fargate defines the AWS resources of a runner that ECS runs on Fargate: its
// roles, its task and its network. The customer's stack and the vendor's stack use it,
// so a runner has the same limits in both.
package fargate

import (
	"maps"
	"slices"
	"strconv"
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

// The folders that the runner writes. The rest of its file system is read-only.
const (
	dataFolder = "/var/lib/fairlead-runner"
	tempFolder = "/tmp"
)

// Fargate kills a container at most 120 s after SIGTERM. The runner interrupts its
// tools earlier, so that they can save their states.
const (
	stopTimeout = 120 * time.Second
	drainFor    = 80 * time.Second
)

// The user of the image; not root.
const user = "65532:65532"

// copyUser is the user of the container that copies the runner's program. Only this group may read the
// program in the runner's image: a tool could read the environment of a step whose program it can read.
const copyUser = "65532:65533"

// Size is a pair of CPU, in 1/1024 of a CPU, and memory, in MiB. Fargate supports only
// some pairs.
type Size struct{ CPU, Memory string }

// Processes returns how many jobs may run as processes in a task of this size: one for each
// GiB of memory, and at least one. A provider of a large cloud uses about half a GiB. If
// the jobs need more memory than the task has, the kernel kills tools while they change
// resources.
func (s Size) Processes() string {
	memory, err := strconv.Atoi(s.Memory)
	if err != nil {
		panic("fargate: the memory of a size is a number of MiB: " + err.Error())
	}
	return strconv.Itoa(max(1, memory/1024))
}

// Sizes returns the sizes that a runner may have, by name.
func Sizes() map[string]Size {
	return map[string]Size{"Small": {"256", "512"}, "Medium": {"512", "1024"}, "Large": {"1024", "2048"}, "XLarge": {"2048", "4096"}}
}

// Environment returns the environment of a runner that uses the identity of its task:
// the fields of r that differ from their defaults, and the settings of a Fargate task.
func Environment(r config.Runner) (map[string]string, error) {
	r.Identity, r.Data, r.DrainFor, r.LogLevel = "aws-iam", dataFolder, drainFor, "info"
	r.ShareLog = true // set, so that the customer sees it in the template
	environ, err := config.Environ(&r)
	if err != nil {
		return nil, err
	}
	delete(environ, "FAIRLEAD_MAKE_INSTALL_KEY")                                                // the data folder is empty at each start: a seed there would be lost
	maps.DeleteFunc(environ, func(_, value string) bool { return value == "" || value == "0" }) // the agent uses the default of such a variable
	return environ, nil
}

// Trust returns the trust policy that lets ECS give a role to tasks of this account
// only. tasks is the ARN pattern of the tasks.
func Trust(account, tasks string) map[string]any {
	return policy.Trust("ecs-tasks.amazonaws.com", map[string]map[string]any{
		"StringEquals": {"aws:SourceAccount": account},
		"ArnLike":      {"aws:SourceArn": tasks},
	})
}

// Starts returns the permissions that ECS needs to start the container: pull from the
// repositories, and write the log.
func Starts(log, repositories string) []policy.Statement {
	return []policy.Statement{
		{Sid: "RunnerLog", Actions: []string{"logs:CreateLogStream", "logs:PutLogEvents"}, Resources: []string{log}},
		{Sid: "PullImage", Actions: []string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"}, Resources: []string{repositories}},
		{Sid: "RegistryLogin", Actions: []string{"ecr:GetAuthorizationToken"}, Resources: []string{"*"}},
	}
}

// ReadsSecrets returns the permissions that a task needs to read the secrets of Secrets Manager and the parameters of SSM
// with these ARNs. keys is the pattern of the KMS keys that may encrypt them.
func ReadsSecrets(arns []string, keys string) []policy.Statement {
	return []policy.Statement{
		{Sid: "ReadSecrets", Actions: []string{"secretsmanager:GetSecretValue", "ssm:GetParameter"}, Resources: arns},
		// A secret under AWS's own key needs no permission for the key. Secrets Manager and SSM open only the secrets that
		// the statement above names.
		{Sid: "OpenSecrets", Actions: []string{"kms:Decrypt"}, Resources: []string{keys},
			Conditions: map[string]map[string]any{"StringLike": {"kms:ViaService": []string{"secretsmanager.*.amazonaws.com", "ssm.*.amazonaws.com"}}}},
	}
}

// Cluster makes a cluster for one runner only.
func Cluster(stack awscdk.Stack, id string) awsecs.CfnCluster {
	return awsecs.NewCfnCluster(stack, jsii.String(id), &awsecs.CfnClusterProps{
		ClusterSettings: []*awsecs.CfnCluster_ClusterSettingsProperty{{Name: jsii.String("containerInsights"), Value: jsii.String("disabled")}},
	})
}

// The containers of a task.
const (
	agentContainer = "runner"
	// stepContainer is the name that the ecs executor gives to the container of a step.
	stepContainer = "step"
	// copyContainer is the name that it expects of the container which copies the runner's program.
	copyContainer = "copy"
)

// programFolder is the folder of the runner's program in the image of a script. The runner's image
// declares it as a volume, so the volume gets its owner there.
const programFolder = "/.fairlead"

// Task describes the task of an agent, or of a step that has a task of its own.
type Task struct {
	Family      string
	Image       string // for arm64, by digest
	Size        Size
	Environment map[string]string
	// Role is the task's role; nil: the task of a step. It has no command, no environment and no
	// role: the agent gives these to each step.
	Role  awsiam.CfnRole
	Alone bool // the image's program is no runner and needs no command
	// Runner is the runner's image, if Image is that of a script. A first container copies the
	// runner's program out of it, and the step runs this program in Image. "": Image is the runner's.
	Runner    string
	Execution awsiam.CfnRole
	Log       awslogs.CfnLogGroup
}

// Definition makes the task definition: not root, with a read-only file system except
// for two folders.
func (t Task) Definition(stack awscdk.Stack, id string) awsecs.CfnTaskDefinition {
	var variables []*awsecs.CfnTaskDefinition_KeyValuePairProperty
	for _, name := range slices.Sorted(maps.Keys(t.Environment)) {
		variables = append(variables, &awsecs.CfnTaskDefinition_KeyValuePairProperty{Name: jsii.String(name), Value: jsii.String(t.Environment[name])})
	}
	mount := func(volume, path string, readOnly bool) *awsecs.CfnTaskDefinition_MountPointProperty {
		return &awsecs.CfnTaskDefinition_MountPointProperty{SourceVolume: jsii.String(volume), ContainerPath: jsii.String(path), ReadOnly: jsii.Bool(readOnly)}
	}
	volumes := []*awsecs.CfnTaskDefinition_VolumeProperty{{Name: jsii.String("data")}, {Name: jsii.String("temp")}}
	mounts := []*awsecs.CfnTaskDefinition_MountPointProperty{mount("data", dataFolder, false), mount("temp", tempFolder, false)}
	name, command, role := agentContainer, jsii.Strings("agent"), (*string)(nil)
	switch {
	case t.Role == nil:
		name, command = stepContainer, nil
	case t.Alone:
		command, role = nil, t.Role.AttrArn()
	default:
		role = t.Role.AttrArn()
	}
	container := func(name, image string, command *[]*string, mounts []*awsecs.CfnTaskDefinition_MountPointProperty) *awsecs.CfnTaskDefinition_ContainerDefinitionProperty {
		return &awsecs.CfnTaskDefinition_ContainerDefinitionProperty{
			Name: jsii.String(name), Image: jsii.String(image), Essential: jsii.Bool(true), Command: command,
			User: jsii.String(user), ReadonlyRootFilesystem: jsii.Bool(true), Privileged: jsii.Bool(false),
			// No init process: it would run as the tools' user with the container's whole
			// environment, and any tool could read it. The agent reaps its children itself.
			LinuxParameters: &awsecs.CfnTaskDefinition_LinuxParametersProperty{InitProcessEnabled: jsii.Bool(false)},
			StopTimeout:     jsii.Number(stopTimeout.Seconds()), Environment: variables, MountPoints: mounts,
			LogConfiguration: &awsecs.CfnTaskDefinition_LogConfigurationProperty{LogDriver: jsii.String("awslogs"), Options: map[string]string{
				"awslogs-group": *t.Log.Ref(), "awslogs-region": *stack.Region(), "awslogs-stream-prefix": name,
			}},
		}
	}
	containers := []*awsecs.CfnTaskDefinition_ContainerDefinitionProperty{container(name, t.Image, command, mounts)}
	if t.Runner != "" {
		const volume = "program"
		volumes = append(volumes, &awsecs.CfnTaskDefinition_VolumeProperty{Name: jsii.String(volume)})
		// The copying container has the other volumes too. The runner's image declares their folders, so ECS gives each
		// the owner and the mode that it has there. In the image of the script they would belong to root.
		copying := container(copyContainer, t.Runner, jsii.Strings("copy", programFolder), append(slices.Clone(mounts), mount(volume, programFolder, false)))
		copying.Essential, copying.User = jsii.Bool(false), jsii.String(copyUser) // it ends before the step starts
		step := containers[0]
		step.EntryPoint, step.WorkingDirectory = jsii.Strings(programFolder+"/runner"), jsii.String(tempFolder)
		step.MountPoints = append(slices.Clone(mounts), mount(volume, programFolder, true))
		step.DependsOn = []*awsecs.CfnTaskDefinition_ContainerDependencyProperty{{ContainerName: jsii.String(copyContainer), Condition: jsii.String("SUCCESS")}}
		containers = append(containers, copying)
	}
	return awsecs.NewCfnTaskDefinition(stack, jsii.String(id), &awsecs.CfnTaskDefinitionProps{
		Family: jsii.String(t.Family), RequiresCompatibilities: jsii.Strings("FARGATE"), NetworkMode: jsii.String("awsvpc"),
		Cpu: jsii.String(t.Size.CPU), Memory: jsii.String(t.Size.Memory),
		RuntimePlatform:  &awsecs.CfnTaskDefinition_RuntimePlatformProperty{CpuArchitecture: jsii.String("ARM64"), OperatingSystemFamily: jsii.String("LINUX")},
		ExecutionRoleArn: t.Execution.AttrArn(), TaskRoleArn: role,
		Volumes: volumes, ContainerDefinitions: containers,
	})
}

// Service describes the ECS service that keeps a task running.
type Service struct {
	Cluster  awsecs.CfnCluster
	Task     awsecs.CfnTaskDefinition
	Count    *float64
	Subnets  *[]*string
	Group    awsec2.CfnSecurityGroup
	PublicIP *string // ENABLED or DISABLED
	Tags     *[]*awscdk.CfnTag
}

// Make makes the service. ECS Exec is disabled, so no shell can be opened in its
// tasks.
func (s Service) Make(stack awscdk.Stack, id string) awsecs.CfnService {
	return awsecs.NewCfnService(stack, jsii.String(id), &awsecs.CfnServiceProps{
		Cluster: s.Cluster.Ref(), TaskDefinition: s.Task.Ref(), LaunchType: jsii.String("FARGATE"), PlatformVersion: jsii.String("LATEST"),
		DesiredCount: s.Count, EnableExecuteCommand: jsii.Bool(false), PropagateTags: jsii.String("SERVICE"), Tags: s.Tags,
		// A new runner starts while the old one drains. If the new task does not
		// start, ECS rolls back.
		DeploymentConfiguration: &awsecs.CfnService_DeploymentConfigurationProperty{
			MinimumHealthyPercent: jsii.Number(100), MaximumPercent: jsii.Number(200),
			DeploymentCircuitBreaker: &awsecs.CfnService_DeploymentCircuitBreakerProperty{Enable: jsii.Bool(true), Rollback: jsii.Bool(true)},
		},
		NetworkConfiguration: &awsecs.CfnService_NetworkConfigurationProperty{AwsvpcConfiguration: &awsecs.CfnService_AwsVpcConfigurationProperty{
			Subnets: s.Subnets, SecurityGroups: &[]*string{s.Group.AttrGroupId()}, AssignPublicIp: s.PublicIP,
		}},
	})
}
