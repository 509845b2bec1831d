package step

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/plugin"
)

// registryLogin is the environment variable with the job's login to the control plane's own registry of images.
const registryLogin = "FAIRLEAD_REGISTRY_LOGIN"

// registryCA is the environment variable with the certificates of the control plane, in PEM.
const registryCA = "FAIRLEAD_REGISTRY_CA"

// ownRegistry completes the location of images that are in the control plane's own registry. Its host is the one that the
// control plane names for artifacts. The tool logs in with the token for what it keeps in the control plane.
func (a *execution) ownRegistry(spec *events.JobSpec, env plugin.Env) {
	if spec.Registry == nil || spec.Registry.Kind != string(runnerspec.ControlPlaneRegistry) {
		return
	}
	scheme := "https://"
	if u, err := url.Parse(a.in.URL); err == nil && u.Scheme == "http" {
		scheme = "http://"
	}
	host := cmp.Or(a.in.Registry, a.in.URL)
	for _, s := range []string{"https://", "http://"} {
		host = strings.TrimPrefix(host, s)
	}
	at := *spec.Registry
	at.URL, at.Variable = scheme+strings.TrimSuffix(host, "/"), registryLogin
	spec.Registry = &at
	env.Environ[registryLogin] = "job:" + env.StateToken
	if a.in.CA != "" {
		at.CA = registryCA
		env.Environ[registryCA] = a.in.CA
	}
}
