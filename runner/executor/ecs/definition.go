package ecs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor"
)

// Defaults of a task. CPU and memory have the smallest size that suffices for a plan that is not tiny.
const (
	defaultCPU    = 1000    // thousandths
	defaultMemory = 2 << 30 // bytes
	// maxStopTimeout is the longest stopTimeout of a container on Fargate. It applies when ECS stops
	// the task. A cancellation does not stop the task: the step interrupts its tool itself, and
	// gives it stop_grace.
	maxStopTimeout = 2 * time.Minute
)

// user is the user and group of the runner's image. It is not root.
const user = "65532:65532"

// definitionOf returns the task definition of an image of a step's own; "" for the runner's image. Such a
// definition is never registered here: its author chooses what runs with the roles of the tasks.
func (e *Executor) definitionOf(image string) (string, error) {
	definition := e.o.Job.ImageDefinitions[image]
	if image != "" && definition == "" {
		return "", &executor.LaunchError{Cause: fairlead.CauseImageRefused, Err: fmt.Errorf("the component runs in the image %s, and this runner has no task definition for it: "+
			"add the image to the parameter ScriptImages of the runner's stack. Without a stack, name a task definition under job.image_definitions of the agent's file", image)}
	}
	return definition, nil
}

// definition returns the ARN of the task definition of the runner's image. If the definition does not
// exist, the function registers it. The name of the definition's family contains a
// hash of its content, so all agents share one definition, also after a restart.
// After a change of the configuration, the driver registers another definition,
// and running tasks do not change.
func (e *Executor) definition(ctx context.Context) (string, error) {
	if e.o.Job.TaskDefinition != "" {
		return e.o.Job.TaskDefinition, nil
	}
	e.making.Lock()
	defer e.making.Unlock()
	if e.made != "" {
		return e.made, nil
	}
	in := e.describe()
	family, err := e.familyOf(in)
	if err != nil {
		return "", err
	}
	in.Family, in.Tags = &family, e.tags
	found, err := e.api.DescribeTaskDefinition(ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: in.Family})
	if err == nil {
		e.made = aws.ToString(found.TaskDefinition.TaskDefinitionArn)
		return e.made, nil
	}
	if _, none := errors.AsType[*types.ClientException](err); !none { // no such definition; a role that may not describe definitions may still be permitted to register one
		if passing(err) {
			return "", err
		}
	}
	made, err := e.api.RegisterTaskDefinition(ctx, in)
	if err != nil {
		return "", fmt.Errorf("register the task definition %s: %w", *in.Family, err)
	}
	e.made = aws.ToString(made.TaskDefinition.TaskDefinitionArn)
	return e.made, nil
}

// familyOf returns the family of a task definition that describe returned.
func (e *Executor) familyOf(in *ecs.RegisterTaskDefinitionInput) (string, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "fairlead-" + e.o.Runner + "-" + hex.EncodeToString(sum[:8]), nil
}

// families returns the families of the tasks that the driver starts.
func (e *Executor) families() ([]string, error) {
	var all []string
	if e.o.Job.TaskDefinition == "" {
		made, err := e.familyOf(e.describe())
		if err != nil {
			return nil, err
		}
		all = append(all, made)
	}
	for _, d := range append(slices.Collect(maps.Values(e.o.Job.ImageDefinitions)), e.o.Job.TaskDefinition) {
		// An ARN ends with task-definition/FAMILY:REVISION.
		if family, _, _ := strings.Cut(d[strings.LastIndexByte(d, '/')+1:], ":"); family != "" {
			all = append(all, family)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// describe returns the task definition without its name.
func (e *Executor) describe() *ecs.RegisterTaskDefinitionInput {
	j, yes, no := e.o.Job, true, false
	cpu, memory := cmp.Or(j.CPU, defaultCPU), cmp.Or(j.Memory, defaultMemory) // the task has one container, which gets all CPU and memory of the task
	step := types.ContainerDefinition{Name: aws.String(Container), Image: &j.Image, Essential: &yes, ReadonlyRootFilesystem: &yes, User: aws.String(user),
		Cpu: int32(float64(cpu) * 1.024), Memory: aws.Int32(int32(memory >> 20)),
		// An init process would have the tools' user and the container's whole environment, which a tool could then read.
		LinuxParameters: &types.LinuxParameters{InitProcessEnabled: &no}}
	stopTimeout := cmp.Or(time.Duration(j.StopGrace), maxStopTimeout)
	if j.LaunchType != "ec2" {
		stopTimeout = min(stopTimeout, maxStopTimeout)
	}
	step.StopTimeout = aws.Int32(int32(stopTimeout / time.Second))
	if j.PullSecret != "" {
		step.RepositoryCredentials = &types.RepositoryCredentials{CredentialsParameter: &j.PullSecret}
	}
	for _, variable := range slices.Sorted(maps.Keys(j.Secrets)) {
		step.Secrets = append(step.Secrets, types.Secret{Name: aws.String(variable), ValueFrom: aws.String(j.Secrets[variable])})
	}
	if j.LogGroup != "" {
		step.LogConfiguration = &types.LogConfiguration{LogDriver: types.LogDriverAwslogs, Options: map[string]string{
			"awslogs-group": j.LogGroup, "awslogs-region": e.o.AWS.Region, "awslogs-stream-prefix": j.LogPrefix}}
	}
	in := &ecs.RegisterTaskDefinitionInput{NetworkMode: types.NetworkModeAwsvpc, RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate},
		Cpu: aws.String(units(cpu)), Memory: aws.String(mebibytes(memory)),
		ExecutionRoleArn: &j.ExecutionRoleARN, TaskRoleArn: given(j.TaskRoleARN)}
	if j.LaunchType == "ec2" {
		in.RequiresCompatibilities = []types.Compatibility{types.CompatibilityEc2}
	}
	for _, v := range []struct{ name, path string }{{"data", j.Data}, {"tmp", "/tmp"}} {
		in.Volumes = append(in.Volumes, types.Volume{Name: aws.String(v.name)})
		step.MountPoints = append(step.MountPoints, types.MountPoint{SourceVolume: aws.String(v.name), ContainerPath: aws.String(v.path)})
	}
	in.ContainerDefinitions = []types.ContainerDefinition{step}
	return in
}
