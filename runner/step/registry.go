package step

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
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
	at := *spec.Registry
	at.URL, at.Variable = a.ownRegistryURL(), registryLogin
	spec.Registry = &at
	env.Environ[registryLogin] = "job:" + env.StateToken
	if a.in.CA != "" {
		at.CA = registryCA
		env.Environ[registryCA] = a.in.CA
	}
}

// ownRegistryURL returns the URL of the control plane's own registry.
func (a *execution) ownRegistryURL() string {
	scheme := "https://"
	if u, err := url.Parse(a.in.URL); err == nil && u.Scheme == "http" {
		scheme = "http://"
	}
	host := cmp.Or(a.in.Registry, a.in.URL)
	for _, s := range []string{"https://", "http://"} {
		host = strings.TrimPrefix(host, s)
	}
	return scheme + strings.TrimSuffix(host, "/")
}

// imageLogin is the environment variable with the job's login to the image that a build has made.
const imageLogin = "FAIRLEAD_IMAGE_LOGIN"

// builtImage gives the tool the image that a build has made of the component, with a login that may only read it. In the
// control plane's own registry this is the token for what the tool keeps in the control plane.
func (a *execution) builtImage(ctx context.Context, c *client.Client, spec events.JobSpec, token string, env *plugin.Env, hide func(string)) error {
	if t, _ := component.Of(spec.Plugin); !t.Dockerfile || spec.Artifact == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	l, err := a.registryLogin(bounded, c, token, hide)
	if ctx.Err() != nil {
		return fmt.Errorf("log in to the image's registry: %w", ctx.Err())
	}
	if err != nil {
		return &plugin.Error{Reason: fairlead.ReasonArtifactUnavailable, Message: "the control plane gives no login to the component's image: " + err.Error(), Err: err}
	}
	host := a.registryHost()
	at := &plugin.BuiltImage{URL: a.ownRegistryURL(), Repository: strings.TrimPrefix(spec.Artifact.Repository, host+"/"), Digest: spec.Artifact.Digest, Login: imageLogin}
	env.Image = at
	if l.Token == "" { // another registry
		at.URL, env.Environ[imageLogin] = "https://"+host, l.Username+":"+l.Password
		return nil
	}
	env.Environ[imageLogin] = "job:" + env.StateToken
	if a.in.CA != "" {
		at.CA = registryCA
		env.Environ[registryCA] = a.in.CA
	}
	return nil
}
