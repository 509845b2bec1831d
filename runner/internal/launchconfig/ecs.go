package launchconfig

import (
	"cmp"
	"errors"
	"maps"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// ECSSteps are tasks of Amazon ECS.
type ECSSteps struct {
	config.ECS
	Definition *TaskDefinition     // to be made; nil: ECS.TaskDefinition names one
	Auth       *runnerspec.AWSAuth // with which the account is reached; nil: as the agent is there
}

// TaskDefinition is what a task definition says beside what each task says
// itself. It holds references to secrets, and none.
type TaskDefinition struct {
	Image      string
	PullSecret string            // ARN; "": the image is anybody's, or the execution role may pull it
	Secrets    map[string]string // variable to the ARN of a secret or a parameter
	StopGrace  time.Duration     // 0: as long as Fargate grants
}

// ECSOf is how tasks are started.
func ECSOf(r *runnerspec.ECSRunner, env config.ECS) (ECSSteps, error) {
	j := r.Job
	e := ECSSteps{ECS: env, Auth: r.Auth}
	over(&e.Region, j.Region)
	over(&e.Cluster, j.Cluster)
	overList(&e.Subnets, j.Subnets)
	overList(&e.SecurityGroups, j.SecurityGroups)
	over(&e.PublicIP, j.PublicIP)
	over(&e.LaunchType, j.LaunchType)
	over(&e.TaskRole, j.TaskRoleARN)
	over(&e.ExecutionRole, j.ExecutionRoleARN)
	over(&e.CPU, config.MilliCPU(j.CPU))
	over(&e.Memory, config.Bytes(j.Memory))
	over(&e.Disk, config.Bytes(j.Disk))
	over(&e.LogGroup, j.LogGroup)
	overList(&e.Tags, pairs(j.Labels))
	over(&e.StartTimeout, time.Duration(j.StartTimeout))
	if j.TaskDefinition != "" {
		e.TaskDefinition = j.TaskDefinition
		return e, nil
	}
	image := cmp.Or(j.Image, env.Image)
	if image == "" && (len(j.Secrets) > 0 || j.PullSecret != "") {
		return e, errors.New("secrets and pull_secret are said by a task definition, which takes an image to be made: give image, or have FAIRLEAD_ECS_IMAGE set where the agent is")
	}
	if image != "" {
		e.Definition = &TaskDefinition{Image: image, PullSecret: j.PullSecret, Secrets: maps.Clone(j.Secrets), StopGrace: time.Duration(j.StopGrace)}
		e.TaskDefinition = ""
	}
	return e, nil
}
