package runnerspec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// DecodeRunner reads a runner_configuration that was checked before, such as one that the control plane sent to an
// agent. Its secrets may be Masked. An unknown field is an error, because an executor must not ignore a setting.
func DecodeRunner(data []byte) (Configuration, error) {
	var c Common
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("decode a runner's configuration: %w", err)
	}
	r := newConfiguration(c.Type)
	if r == nil {
		return nil, fmt.Errorf("decode a runner's configuration: there is no kind %q", c.Type)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("decode a runner's configuration: %w", err)
	}
	return r, nil
}

// Direct reports whether an agent next to the control plane serves the runner. That agent reaches the place where jobs
// run with the given credentials.
func (s *Spec) Direct() bool { return Direct(s.Runner) }

// Direct is Spec.Direct for a runner_configuration.
func Direct(r Configuration) bool { return r.direct() }

// ForStack gives the runner the kind of a runner in a customer's stack on AWS, aws-ecs. A runner of kind local, the
// default kind, keeps the fields that all kinds have; the agent's file in the stack has the others. The problems name
// what such a runner cannot have; then the runner is not changed.
func (s *Spec) ForStack() Problems {
	of := *s
	switch r := s.Runner.(type) {
	case *LocalRunner:
		e := &ECSRunner{Common: r.Common, Job: ECSJob{JobCommon: r.Job.JobCommon}}
		e.Type, e.Job.Secrets = AWSECS, nil // those of kind local are files on the agent's machine
		of.Runner = e
	case *ECSRunner:
		if r.Auth == nil {
			return nil
		}
		return stackProblem("runner_configuration.auth", "the control plane starts the jobs of this runner, but the agent in a customer's stack starts its own")
	default:
		return stackProblem("runner_configuration.type", fmt.Sprintf("the runner is of kind %s, but a customer's stack has a runner of kind %s", r.Kind(), AWSECS))
	}
	data, err := json.Marshal(of)
	if err != nil {
		panic("runnerspec: encode a configuration: " + err.Error()) // cannot happen: it consists of strings and numbers
	}
	r := Parse("runner", data)
	if r.Spec != nil {
		*s = of
	}
	return r.Problems
}

func stackProblem(where, message string) Problems {
	return Problems{{File: "runner", Line: 1, Column: 1, Code: "not-in-a-stack", Message: where + ": " + message, Hint: "Create another runner for the install."}}
}

// StartTimeout returns the start timeout: the longest time from a job's launch until its first report. It is 0 for a
// runner of kind local without a setting, because its processes start at once.
func (s *Spec) StartTimeout() time.Duration {
	row, _ := s.Runner.Kind().row()
	return cmp.Or(time.Duration(s.Runner.job().StartTimeout), row.startTimeout)
}

// StopGrace returns the time that an interrupted tool has to save its state after a cancellation or a timeout. It is 0
// if the control plane decides. The step itself interrupts its tool, so no limit of the platform applies.
func (s *Spec) StopGrace() time.Duration {
	row, _ := s.Runner.Kind().row()
	return cmp.Or(time.Duration(s.Runner.job().StopGrace), row.stopGrace)
}

// NoOutput returns the no-output timeout. It is 0 if the control plane decides.
func (s *Spec) NoOutput() time.Duration { return time.Duration(s.Runner.job().NoOutput) }

// Environ returns the environment variables of the proxy, in upper and lower case. p may be nil.
func (p *Proxy) Environ() map[string]string {
	env := map[string]string{}
	if p == nil {
		return env
	}
	for name, value := range map[string]string{"http_proxy": p.HTTP, "https_proxy": p.HTTPS, "no_proxy": p.No} {
		if value != "" {
			env[name], env[strings.ToUpper(name)] = value, value
		}
	}
	return env
}
