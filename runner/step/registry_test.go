package step

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The tool never gets the lease. For the control plane's own registry it gets the token for what it keeps there; for another
// registry, a login that the control plane gives for this job.
func TestToolGetsALoginToItsImageAndNoLease(t *testing.T) {
	const ecr = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
	for name, tc := range map[string]struct {
		in      attempt.Input
		answer  func(*http.Request) (*http.Response, error) // to the request for a login; nil: there must be none
		want    plugin.BuiltImage
		environ map[string]string
		hidden  []string
	}{
		"the control plane's registry": {attempt.Input{URL: "http://127.0.0.1:8080", Registry: "127.0.0.1:8080"}, nil,
			plugin.BuiltImage{URL: "http://127.0.0.1:8080", Login: imageLogin}, map[string]string{imageLogin: "job:state-token"}, nil},
		"with a certificate of its own": {attempt.Input{URL: "https://control.example", Registry: "control.example", CA: "PEM"}, nil,
			plugin.BuiltImage{URL: "https://control.example", Login: imageLogin, CA: registryCA}, map[string]string{imageLogin: "job:state-token", registryCA: "PEM"}, nil},
		"the same under another name": {attempt.Input{URL: "https://control.example", Registry: "images.example"}, func(r *http.Request) (*http.Response, error) {
			return problem(http.StatusNotFound, string(fairlead.CodeNoPullLogin)).response(r), nil
		}, plugin.BuiltImage{URL: "https://images.example", Login: imageLogin}, map[string]string{imageLogin: "job:state-token"}, nil},
		"another registry": {attempt.Input{URL: "https://control.example", Registry: ecr, CA: "PEM"}, func(r *http.Request) (*http.Response, error) {
			return okAnswer(r, wire.RegistryLogin{Username: "AWS", Password: "hush-hush"})
		}, plugin.BuiltImage{URL: "https://" + ecr, Login: imageLogin}, map[string]string{imageLogin: "AWS:hush-hush"}, []string{"hush-hush"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.Job = "job_1"
			a := &execution{in: tc.in}
			c := clientOf(t, func(r *http.Request) (*http.Response, error) {
				if tc.answer == nil || !strings.HasSuffix(r.URL.Path, "/pull-login") {
					t.Errorf("the step asks for %s", r.URL)
				}
				return tc.answer(r)
			}, -1)
			var hidden []string
			env := plugin.Env{StateToken: "state-token", Environ: map[string]string{}}
			spec := events.JobSpec{Plugin: component.DockerBuild, Artifact: &events.ArtifactRef{Repository: "built/web", Digest: "sha256:1"}}
			if err := a.builtImage(t.Context(), c, spec, "lease-token", &env, func(text string) { hidden = append(hidden, text) }); err != nil {
				t.Fatal(err)
			}
			tc.want.Repository, tc.want.Digest = "built/web", "sha256:1"
			if env.Image == nil || *env.Image != tc.want || !reflect.DeepEqual(env.Environ, tc.environ) {
				t.Errorf("the tool gets %+v with %v; want %+v with %v", env.Image, env.Environ, tc.want, tc.environ)
			}
			if !slices.Equal(slices.DeleteFunc(hidden, func(text string) bool { return text == "" }), tc.hidden) {
				t.Errorf("the log hides %q, want %q", hidden, tc.hidden)
			}
		})
	}
}

func TestOtherTypesGetNoImage(t *testing.T) {
	a := &execution{in: attempt.Input{URL: "https://control.example", Registry: "other.example"}}
	c := clientOf(t, func(r *http.Request) (*http.Response, error) {
		t.Errorf("the step asks for %s", r.URL)
		return problem(http.StatusForbidden, "forbidden").response(r), nil
	}, -1)
	env := plugin.Env{Environ: map[string]string{}}
	spec := events.JobSpec{Plugin: component.Image, Artifact: &events.ArtifactRef{Repository: "web", Digest: "sha256:1"}}
	if err := a.builtImage(t.Context(), c, spec, "lease-token", &env, func(string) {}); err != nil || env.Image != nil || len(env.Environ) > 0 {
		t.Errorf("%+v, %v, %v", env.Image, env.Environ, err)
	}
}
