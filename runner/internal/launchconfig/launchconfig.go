// Package launchconfig says how the steps of a runner are started: as its
// configuration says, and, for what that leaves out, as the agent's environment
// does. It is pure: it opens nothing and asks nobody.
package launchconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// The executors, as FAIRLEAD_EXECUTOR names them.
const (
	Process    = "process"
	Docker     = "docker"
	Kubernetes = "kubernetes"
	ECS        = "ecs"
)

// Environment is what the agent's environment says. Of the executors' settings
// only those of the one that is asked for by ExecutorOf need be there.
type Environment struct {
	Executor    string // FAIRLEAD_EXECUTOR; "": nothing is said
	StepURL     string // FAIRLEAD_STEP_URL; "": nothing is said
	Concurrency int    // FAIRLEAD_CONCURRENCY; 0: nothing is said
	Docker      config.Docker
	Kubernetes  config.Kubernetes
	ECS         config.ECS
	// Direct is whether the agent is beside the control plane, and has the
	// credentials of the configuration, which are masked for any other.
	Direct bool
}

// Setup is how the steps of a runner are started. Of the executors' parts the
// one that Executor names counts.
type Setup struct {
	Executor    string
	StepURL     string            // at which steps reach the control plane; "": as the agent does
	Concurrency int               // most steps of this agent at once; 0: as many as its machine can hold
	Environ     map[string]string // of each step: its way through a proxy
	// SecretEnv are the variables that hold secrets, which tools get and no log
	// shows, in order. SecretFiles are those of them that the agent itself reads,
	// by the path of a file on its machine; the others come from the place where
	// the step runs.
	SecretEnv   []string
	SecretFiles map[string]string

	Process    ProcessSteps
	Docker     DockerSteps
	Kubernetes KubernetesSteps
	ECS        ECSSteps
}

// ProcessSteps are processes beside the agent.
type ProcessSteps struct {
	Folder string // in whose folder work they work; "": the agent's data folder
}

// ExecutorOf returns what starts the steps of a runner of that kind. Local is
// what a runner is of which nobody has said anything, so there the agent's
// environment may name another.
func ExecutorOf(k runnerspec.Kind, named string) string {
	switch k {
	case runnerspec.AWSECS:
		return ECS
	case runnerspec.AWSEKS, runnerspec.AzureAKS, runnerspec.GCPGKE, runnerspec.Kubernetes:
		return Kubernetes
	case runnerspec.Docker:
		return Docker
	}
	return cmp.Or(named, Process)
}

// Alone is the setup of an agent that has heard of no configuration.
func Alone(env Environment) Setup {
	return Setup{Executor: cmp.Or(env.Executor, Process), StepURL: env.StepURL, Concurrency: env.Concurrency,
		Docker: DockerSteps{Docker: env.Docker}, Kubernetes: KubernetesSteps{Kubernetes: env.Kubernetes}, ECS: ECSSteps{ECS: env.ECS}}
}

// Of is the setup by a configuration. The error is about what cannot be
// followed here, and is told to whoever has written the configuration.
func Of(r runnerspec.Configuration, env Environment) (Setup, error) {
	if runnerspec.Direct(r) != env.Direct {
		if env.Direct {
			return Setup{}, errors.New("the configuration does not say how the runner's jobs are reached from beside the control plane")
		}
		return Setup{}, errors.New("the configuration has its jobs started by an agent beside the control plane: take `cluster`, or `auth`, out of it if this agent is to")
	}
	s := Alone(env)
	s.Executor = ExecutorOf(r.Kind(), env.Executor)
	var err error
	switch r := r.(type) {
	case *runnerspec.LocalRunner:
		s.common(r.Common, r.Job.JobCommon, env)
		s.Process.Folder = r.Job.Folder
		s.files(r.Job.Secrets)
		if s.Executor == ECS && len(r.Job.Secrets) > 0 {
			err = errors.New("a task has no way for secrets that are in files of the agent: make the runner one of kind aws-ecs, and refer to Secrets Manager")
		}
	case *runnerspec.DockerRunner:
		s.common(r.Common, r.Job.JobCommon, env)
		s.files(r.Job.Secrets)
		s.Docker, err = DockerOf(r, env.Docker)
	case *runnerspec.ECSRunner:
		s.common(r.Common, r.Job.JobCommon, env)
		s.ECS, err = ECSOf(r, env.ECS)
	case *runnerspec.KubernetesRunner:
		s.kubernetes(r.Common, r.Job, env)
		s.Kubernetes.Reach.Kubernetes = r.Cluster
	case *runnerspec.EKSRunner:
		s.kubernetes(r.Common, r.Job, env)
		s.Kubernetes.Reach.EKS = r.Cluster
	case *runnerspec.AKSRunner:
		s.kubernetes(r.Common, r.Job, env)
		s.Kubernetes.Reach.AKS = r.Cluster
	case *runnerspec.GKERunner:
		s.kubernetes(r.Common, r.Job, env)
		s.Kubernetes.Reach.GKE = r.Cluster
	default:
		err = fmt.Errorf("this version knows no runners of kind %s", r.Kind())
	}
	return s, err
}

// common is what the configurations of all kinds say. The environment variables
// and the longest time of a job are the control plane's to give it.
func (s *Setup) common(r runnerspec.Common, j runnerspec.JobCommon, env Environment) {
	s.StepURL = cmp.Or(j.Endpoint, env.StepURL, r.Endpoint)
	if env.Direct { // its own environment is that of the control plane
		s.StepURL = cmp.Or(j.Endpoint, r.Endpoint, env.StepURL)
	}
	s.Environ = j.Proxy.Environ()
	s.SecretEnv = slices.Sorted(maps.Keys(j.Secrets))
	if r.Concurrency > 0 && (env.Concurrency == 0 || env.Direct) {
		s.Concurrency = r.Concurrency
	} else if r.Concurrency > 0 {
		s.Concurrency = min(r.Concurrency, env.Concurrency) // of this machine, by whoever runs it
	}
}

func (s *Setup) files(secrets map[string]string) { s.SecretFiles = maps.Clone(secrets) }

// pairs writes a map as the variables of an executor do.
func pairs(m map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return out
}

// over sets *to to what a configuration says, unless it says nothing.
func over[T comparable](to *T, said T) {
	var nothing T
	if said != nothing {
		*to = said
	}
}

func overList(to *[]string, said []string) {
	if len(said) > 0 {
		*to = said
	}
}
