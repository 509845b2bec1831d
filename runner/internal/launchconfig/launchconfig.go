// Package launchconfig computes how an agent starts the steps of its runner. It merges the control
// plane's configuration of the runner over the agent's file. It is pure: it does no I/O.
package launchconfig

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// Setup holds the settings for starting a runner's steps.
type Setup struct {
	Runner      runnerspec.Configuration // the merged configuration; the executor reads its settings from it
	StepURL     string                   // control plane's URL for steps; "": the agent's URL
	Concurrency int                      // number of this agent's slots; 0: depends on the machine
	WarmTasks   int                      // number of steps that wait for first jobs; 0: the agent's own setting
	WholeRoles  bool                     // no session policy narrows the role of an apply
	Images      []string                 // patterns of the images in which scripts may run, of the agent's file alone; none: every image
	Environ     map[string]string        // proxy variables of each step
	// SecretEnv holds the sorted names of variables with secrets. Tools get these variables, and logs
	// never show their values. Some of the values are in files on the agent's machine: SecretFiles maps
	// the names of these variables to the files. The platform that runs the step sets the other
	// variables.
	SecretEnv   []string
	SecretFiles map[string]string
}

// Executor returns the name of the executor that starts the steps.
func (s Setup) Executor() string { return s.Runner.Kind().Executor() }

// Of merges the control plane's configuration sent over the agent's file. If the agent has no
// configuration yet, sent is nil. The parameter direct is true if the agent runs next to the control
// plane. The error names a setting that this agent cannot apply. The authors of the configuration see
// the error.
func Of(file, sent runnerspec.Configuration, direct bool) (Setup, error) {
	r := file
	if sent != nil {
		var err error
		if r, err = runnerspec.Overlay(file, sent); err != nil {
			return Setup{}, err
		}
		if runnerspec.Direct(r) != direct {
			if direct {
				return Setup{}, errors.New("the configuration does not say how an agent next to the control plane reaches the runner's compute: add `cluster` or `auth`")
			}
			return Setup{}, errors.New("the configuration is for an agent next to the control plane: if this agent must start the jobs, remove `cluster` or `auth` from it")
		}
	}
	common, job := runnerspec.Shared(r)
	s := Setup{Runner: r, StepURL: cmp.Or(job.Endpoint, common.Endpoint), Concurrency: common.Concurrency, WholeRoles: common.WholeRoles, Images: runnerspec.Images(file), Environ: job.Proxy.Environ(), SecretFiles: map[string]string{}}
	if own, _ := runnerspec.Shared(file); own.Concurrency > 0 && common.Concurrency > 0 {
		s.Concurrency = min(own.Concurrency, common.Concurrency) // the file's value limits this machine; the value of the configuration limits each agent
	}
	for _, of := range []runnerspec.Configuration{file, sent} {
		if of != nil && of.Kind().SecretsAreFiles() {
			_, j := runnerspec.Shared(of)
			maps.Copy(s.SecretFiles, j.Secrets)
		}
	}
	secrets := maps.Clone(s.SecretFiles)
	maps.Copy(secrets, job.Secrets)
	s.SecretEnv = slices.Sorted(maps.Keys(secrets))
	switch r := r.(type) {
	case *runnerspec.ECSRunner:
		s.WarmTasks = r.Job.WarmTasks
		if len(s.SecretFiles) > 0 {
			return s, errors.New("a task cannot get secrets from files of the agent: set the runner's type to aws-ecs, and refer to secrets in Secrets Manager")
		}
		if sent != nil && r.Job.Image == "" && (len(job.Secrets) > 0 || r.Job.PullSecret != "") {
			return s, errors.New("secrets and pull_secret need a task definition that the agent makes, and that needs an image: set runner_configuration.job.image, in the configuration or in the agent's file")
		}
	case *runnerspec.DockerRunner:
		if r.Job.Registry != nil && r.Job.Registry.PasswordFile == "" {
			return s, errors.New("the control plane does not send the registry's password to agents: write it to a file on the agent's machine, and name the file in runner_configuration.job.registry.password_file of the agent's file")
		}
	}
	return s, nil
}
