package runnerspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// DecodeRunner reads a runner_configuration that was checked before, such as one
// that an agent is told; its secrets may be Masked. A field that this version
// does not know is an error: whoever starts jobs must not leave out what
// somebody has asked for.
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

// Direct reports whether the runner is served by an agent beside the control
// plane, which reaches what its jobs run on with the credentials given.
func (s *Spec) Direct() bool { return Direct(s.Runner) }

// Direct is Spec.Direct of a runner_configuration.
func Direct(r Configuration) bool { return r.direct() }

// startTimeout is how long a job may take to begin where an image is pulled, and
// perhaps a machine started, before it does.
const startTimeout = 5 * time.Minute

// StartTimeout returns how long a job may take from its launch until it reports;
// 0 where a process is started at once, and nothing else was said.
func (s *Spec) StartTimeout() time.Duration {
	if t := time.Duration(s.Runner.job().StartTimeout); t > 0 || s.Runner.Kind() == Local {
		return t
	}
	return startTimeout
}

// StopGrace returns how long an interrupted tool may take to save its state; 0
// where the configuration leaves it to the control plane.
func (s *Spec) StopGrace() time.Duration { return time.Duration(s.Runner.job().StopGrace) }

// NoOutput returns how long a job's tool may say nothing; 0 where the
// configuration leaves it to the control plane.
func (s *Spec) NoOutput() time.Duration { return time.Duration(s.Runner.job().NoOutput) }

// Environ returns the variables by which programs find the proxy, in both
// spellings. p may be nil.
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
