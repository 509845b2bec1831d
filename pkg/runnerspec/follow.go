package runnerspec

import (
	"bytes"
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

// startTimeout is the default start timeout of kinds that pull an image, and perhaps start a machine, before a job
// starts.
const startTimeout = 5 * time.Minute

// StartTimeout returns the start timeout: the longest time from a job's launch until its first report. It is 0 for a
// runner of kind local without a setting, because its processes start at once.
func (s *Spec) StartTimeout() time.Duration {
	if t := time.Duration(s.Runner.job().StartTimeout); t > 0 || s.Runner.Kind() == Local {
		return t
	}
	return startTimeout
}

// StopGrace returns the time that an interrupted tool has to save its state. It is 0 if the control plane decides.
func (s *Spec) StopGrace() time.Duration { return time.Duration(s.Runner.job().StopGrace) }

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
