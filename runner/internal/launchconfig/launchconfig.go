// Package launchconfig decides how the steps of a runner are started: by the
// control plane's configuration of the runner, merged over the agent's own file.
// It is pure: it opens nothing and asks nobody.
package launchconfig

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// Setup is how the steps of a runner are started.
type Setup struct {
	Runner      runnerspec.Configuration // as a whole: its executor takes its settings from it
	StepURL     string                   // at which steps reach the control plane; "": as the agent does
	Concurrency int                      // most steps of this agent at once; 0: as many as its machine can hold
	Environ     map[string]string        // of each step: its way through a proxy
	// SecretEnv are the variables that hold secrets, which tools get and no log
	// shows, in order. SecretFiles are those of them that the agent itself reads,
	// by the path of a file on its machine; the others come from the place where
	// the step runs.
	SecretEnv   []string
	SecretFiles map[string]string
}

// Executor names what starts the steps.
func (s Setup) Executor() string { return s.Runner.Kind().Executor() }

// Of is the setup by an agent's file and the control plane's configuration over
// it; nil: none is known. Direct is whether the agent is beside the control plane.
// The error is about what cannot be followed here, and is shown to those who have
// written the configuration.
func Of(file, sent runnerspec.Configuration, direct bool) (Setup, error) {
	r := file
	if sent != nil {
		var err error
		if r, err = runnerspec.Overlay(file, sent); err != nil {
			return Setup{}, err
		}
		if runnerspec.Direct(r) != direct {
			if direct {
				return Setup{}, errors.New("the configuration does not say how the runner's jobs are reached from beside the control plane")
			}
			return Setup{}, errors.New("the configuration has its jobs started by an agent beside the control plane: take `cluster`, or `auth`, out of it if this agent is to")
		}
	}
	common, job := runnerspec.Shared(r)
	s := Setup{Runner: r, StepURL: cmp.Or(job.Endpoint, common.Endpoint), Concurrency: common.Concurrency, Environ: job.Proxy.Environ(), SecretFiles: map[string]string{}}
	if own, _ := runnerspec.Shared(file); own.Concurrency > 0 && common.Concurrency > 0 {
		s.Concurrency = min(own.Concurrency, common.Concurrency) // of this machine, and of all agents
	}
	for _, of := range []runnerspec.Configuration{file, sent} {
		if of != nil && (of.Kind() == runnerspec.Local || of.Kind() == runnerspec.Docker) {
			_, j := runnerspec.Shared(of)
			maps.Copy(s.SecretFiles, j.Secrets)
		}
	}
	secrets := maps.Clone(s.SecretFiles)
	maps.Copy(secrets, job.Secrets)
	s.SecretEnv = slices.Sorted(maps.Keys(secrets))
	switch r := r.(type) {
	case *runnerspec.ECSRunner:
		if len(s.SecretFiles) > 0 {
			return s, errors.New("a task has no way for secrets that are in files of the agent: make the runner one of kind aws-ecs, and refer to Secrets Manager")
		}
		if sent != nil && r.Job.Image == "" && (len(job.Secrets) > 0 || r.Job.PullSecret != "") {
			return s, errors.New("secrets and pull_secret are said by a task definition, which takes an image to be made: give runner_configuration.job.image, there or in the agent's file")
		}
	case *runnerspec.DockerRunner:
		if r.Job.Registry != nil && r.Job.Registry.PasswordFile == "" {
			return s, errors.New("the password of the registry is not sent to agents: put it into a file on the agent's machine, and name that in runner_configuration.job.registry.password_file of the agent's file")
		}
	}
	return s, nil
}
