package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/pkg/pluginprotocol/conformance"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/runner/images/imagetest/memorytest"
	"github.com/fairlead/fairlead/runner/images/mirror"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/program"
	tools "github.com/fairlead/fairlead/tools/program"
)

// The tests start the real program, as a step does.
func folder(t *testing.T) string {
	t.Helper()
	return filepath.Dir(tools.Build(t, "runner/images"))
}

func newPlugin(t *testing.T, data string, environ ...string) plugin.Plugin {
	t.Helper()
	return newPluginOf(t, component.Image, data, environ...)
}

func newPluginOf(t *testing.T, name, data string, environ ...string) plugin.Plugin {
	t.Helper()
	kind, ok := component.Of(name)
	if !ok {
		t.Fatalf("there is no type %s", name)
	}
	return program.New(kind, program.Config{Folder: folder(t), PassEnv: []string{"REGISTRY_LOGIN"}, Environ: append(environ, "PATH="+os.Getenv("PATH")),
		OpenPlans: func(context.Context, plugin.Spec, plugin.Env) (planstore.Store, func(), error) {
			return planstore.OnDisk(data), func() {}, nil
		}})
}

func specOf(target *imagetest.Registry, n int) plugin.Spec {
	name := fmt.Sprintf("web-%d", n)
	return plugin.Spec{Plugin: component.Image, Operation: "plan", Install: "ins_1", InstallName: "acme", Component: name, Job: fairlead.JobID(fmt.Sprintf("job_%d", n)), Epoch: 1, Grace: 5,
		Artifact: &events.ArtifactRef{Repository: "apps/shop/web", Digest: "sha256:image"}, State: &events.StateRef{Storage: "local", Key: "ins_1/" + name},
		Registry: &events.RegistryRef{Kind: "oci", URL: target.URL(), Repository: "ins_1/" + name}}
}

func TestPlugin(t *testing.T) {
	source, target := memorytest.Start(t, memorytest.Whole), memorytest.Start(t, memorytest.Whole)
	digest := source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
	sources := map[string]map[string]string{"sha256:image": {"image.yaml": "image: " + source.Host + "/vendor/web:1\n"}}
	plugintest.Run(t, plugintest.Subject{
		New:  func(data string) plugin.Plugin { return newPlugin(t, data) },
		Good: func(n int) plugin.Spec { return specOf(target, n) },
		Outputs: func(t *testing.T, data string) (plugin.Spec, map[string]wire.FullOutput) {
			s := specOf(target, 3)
			res, err := newPlugin(t, data).Run(t.Context(), s, plugintest.Env(t, data, "job_0-1", plugintest.NewLog(), sources, s))
			if err != nil {
				t.Fatal(err)
			}
			s.Operation, s.Plan = "apply", &events.PlanRef{Job: s.Job, Digest: res.Plan.Digest}
			return s, map[string]wire.FullOutput{"digest": {Value: json.RawMessage(`"` + digest + `"`)},
				"reference": {Value: json.RawMessage(`"` + target.Host + "/ins_1/web-3@" + digest + `"`)}}
		},
		Sources: sources,
	})
}

// ask sends a request of the CLI to the program.
func ask(t *testing.T, name string, req, answer any) {
	t.Helper()
	in, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder(t), "images"), name)
	cmd.Stdin, cmd.Stderr, cmd.Env = bytes.NewReader(in), &log, append(os.Environ(), "DOCKER_CONFIG="+t.TempDir())
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, answer)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, log.String())
	}
}

func TestBundlePlugin(t *testing.T) {
	source, target := memorytest.Start(t, memorytest.Whole), memorytest.Start(t, memorytest.Whole)
	digest := source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
	reference := source.Host + "/vendor/web:1"
	var found bundle.ResolveAnswer
	ask(t, bundle.Resolved, bundle.ResolveRequest{References: []string{reference, source.Host + "/vendor/none:1", "not an image"}}, &found)
	if len(found.Images) != 1 || found.Images[0].Digest != digest || len(found.Errors) != 2 || !strings.Contains(found.Errors[source.Host+"/vendor/none:1"], "Push the image") {
		t.Fatalf("the images are %+v", found)
	}
	lock := bundle.Lock{Images: found.Images, Named: map[string]string{"web": reference}}
	sources := map[string]map[string]string{"sha256:image": {bundle.File: string(lock.Encode())}}
	spec := func(n int) plugin.Spec {
		s := specOf(target, n)
		s.Plugin = component.Bundle
		return s
	}
	plugintest.Run(t, plugintest.Subject{
		New:  func(data string) plugin.Plugin { return newPluginOf(t, component.Bundle, data) },
		Good: spec,
		Outputs: func(t *testing.T, data string) (plugin.Spec, map[string]wire.FullOutput) {
			s := spec(3)
			res, err := newPluginOf(t, component.Bundle, data).Run(t.Context(), s, plugintest.Env(t, data, "job_0-1", plugintest.NewLog(), sources, s))
			if err != nil {
				t.Fatal(err)
			}
			s.Operation, s.Plan = "apply", &events.PlanRef{Job: s.Job, Digest: res.Plan.Digest}
			_, index := lock.Index()
			copied := target.Host + "/ins_1/web-3@" + digest
			return s, map[string]wire.FullOutput{"digest": {Value: json.RawMessage(`"` + index + `"`)}, "registry": {Value: json.RawMessage(`"` + target.Host + `/ins_1/"`)},
				"images": {Value: json.RawMessage(`{"` + reference + `":"` + copied + `"}`)}, "named": {Value: json.RawMessage(`{"web":"` + copied + `"}`)}}
		},
		Sources: sources,
	})
}

// A component of a closed app copies what the lock names, and refuses an image that the lock does not have.
func TestImageOfAClosedAppComesFromItsBundle(t *testing.T) {
	source, target := memorytest.Start(t, memorytest.Whole), memorytest.Start(t, memorytest.Whole)
	digest := target.Push(t, "ins_1/bundle:1", "linux/amd64")
	source.Proxy.SetDown(true)
	reference := source.Host + "/vendor/web:1"
	sources := map[string]map[string]string{"sha256:image": {"image.yaml": "image: " + reference + "\n"}}
	plan := func(images string) (plugin.Result, error) {
		data, s := t.TempDir(), specOf(target, 1)
		s.Options = map[string]events.SpecVar{component.OptionImages: {Value: json.RawMessage(images)}}
		return newPlugin(t, data).Run(t.Context(), s, plugintest.Env(t, data, "job_1-1", plugintest.NewLog(), sources, s))
	}
	res, err := plan(`{"` + reference + `":"` + target.Host + "/ins_1/bundle@" + digest + `"}`)
	if err != nil || !strings.Contains(fmt.Sprint(res.Plan.ChangeSet), digest) {
		t.Errorf("the plan has %+v, %v", res.Plan, err)
	}
	if _, err := plan(`{}`); plugin.ReasonOf(err) != fairlead.ReasonImageNotInBundle || !strings.Contains(err.Error(), reference) {
		t.Errorf("an image outside of the lock: %v", err)
	}
	var named bundle.RenderAnswer
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "image.yaml"), []byte("image: nginx:${vars.tag}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask(t, bundle.Rendered, bundle.RenderRequest{Type: component.Image, Source: dir, Vars: map[string]any{"tag": "1.27"}}, &named)
	if len(named.Images) != 1 || named.Images[0].Image != "nginx:1.27" && named.Images[0].Image != "docker.io/library/nginx:1.27" && named.Images[0].Image != "docker.io/nginx:1.27" {
		t.Errorf("the image is %+v", named)
	}
}

func TestProgramConforms(t *testing.T) {
	source, target := memorytest.Start(t, memorytest.Whole), memorytest.Start(t, memorytest.Whole)
	source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
	dir := t.TempDir()
	program := filepath.Join(dir, "images")
	if err := os.Symlink(filepath.Join(folder(t), "images"), program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "image.yaml"), []byte("image: "+source.Host+"/vendor/web:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := conformance.Run(t.Context(), program, conformance.Spec{Type: component.Image, Registry: &pluginprotocol.Registry{Kind: "oci", URL: target.URL(), Repository: "ins_1"}}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Result == conformance.Failed {
			t.Errorf("%s: %s\n%s", c.Name, c.Message, c.Log)
		}
	}
	if len(report.Checks) < 15 {
		t.Errorf("the suite has %d checks", len(report.Checks))
	}
}

// A login comes from the environment of the job, and never from the request. A wrong one has a typed reason, and nothing shows it.
func TestLoginComesFromAVariableOfTheJob(t *testing.T) {
	source, target := memorytest.Start(t, memorytest.Whole), memorytest.Start(t, memorytest.Whole)
	source.Push(t, "vendor/web:1", "linux/amd64")
	target.Proxy.Fail(func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return user+":"+password != "fairlead:hush-hush"
	}, -1, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	sources := map[string]map[string]string{"sha256:image": {"image.yaml": "image: " + source.Host + "/vendor/web:1\n"}}
	for name, tc := range map[string]struct {
		variable, value string
		reason          fairlead.Reason // "": it works
	}{
		"the login":              {"REGISTRY_LOGIN", "fairlead:hush-hush", ""},
		"a Docker configuration": {"REGISTRY_LOGIN", `{"auths":{"` + target.Host + `":{"username":"fairlead","password":"hush-hush"}}}`, ""},
		"another login":          {"REGISTRY_LOGIN", "fairlead:hush", fairlead.ReasonRegistryForbidden},
		"no login":               {"", "", fairlead.ReasonRegistryForbidden},
		"a text that is none":    {"REGISTRY_LOGIN", "hush", fairlead.ReasonEnvInvalid},
		"no variable":            {"OTHER_LOGIN", "", fairlead.ReasonEnvInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			data, log := t.TempDir(), plugintest.NewLog()
			s := specOf(target, 1)
			s.Registry.Variable = tc.variable
			res, err := newPlugin(t, data, "REGISTRY_LOGIN="+tc.value).Run(t.Context(), s, plugintest.Env(t, data, "job_1-1", log, sources, s))
			if tc.reason == "" && err != nil || tc.reason != "" && plugin.ReasonOf(err) != tc.reason {
				t.Errorf("reason %s, error %v\n%s", plugin.ReasonOf(err), err, log)
			}
			if shown := fmt.Sprint(res, err) + log.String(); strings.Contains(shown, "hush") {
				t.Errorf("the login is shown: %s", shown)
			}
		})
	}
}

// A job spec without a registry is refused: the control plane did not check it, or it is older.
func TestJobWithoutARegistryIsRefused(t *testing.T) {
	data := t.TempDir()
	s := specOf(&imagetest.Registry{}, 1)
	s.Registry = nil
	_, err := newPlugin(t, data).Run(t.Context(), s, plugintest.Env(t, data, "job_1-1", plugintest.NewLog(), map[string]map[string]string{"sha256:image": {"image.yaml": "image: a"}}, s))
	if plugin.ReasonOf(err) != fairlead.ReasonSpecInvalid {
		t.Errorf("reason %s, error %v", plugin.ReasonOf(err), err)
	}
}

// built is the plugin of docker-build with the image that a build has made. It keeps a login that only reads.
type built struct {
	plugin.Plugin
	image plugin.BuiltImage
	login string
}

func (b built) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	env.Image, env.Environ = &b.image, map[string]string{"IMAGE_LOGIN": b.login}
	return b.Plugin.Run(ctx, spec, env)
}

func newBuilt(t *testing.T, data string, source *imagetest.Registry, digest string) built {
	t.Helper()
	kind, ok := component.Of(component.DockerBuild)
	if !ok {
		t.Fatal("there is no type docker-build")
	}
	return built{program.New(kind, program.Config{Folder: folder(t), Environ: []string{"PATH=" + os.Getenv("PATH")},
		OpenPlans: func(context.Context, plugin.Spec, plugin.Env) (planstore.Store, func(), error) {
			return planstore.OnDisk(data), func() {}, nil
		}}), plugin.BuiltImage{URL: source.URL(), Repository: "built/web", Digest: digest, Login: "IMAGE_LOGIN"}, "reader:hush-hush"}
}

func builtSpec(target *imagetest.Registry, operation string) plugin.Spec {
	s := specOf(target, 1)
	s.Plugin, s.Operation, s.Artifact.Digest = component.DockerBuild, operation, "sha256:none" // no source has it: nothing is unpacked
	return s
}

// An apply copies the image of the version with the login that the step gives, keeps as many as the option names, and a destroy
// removes all.
func TestImageOfABuildIsCopied(t *testing.T) {
	source, target := memorytest.Start(t, memorytest.Whole), memorytest.Start(t, memorytest.Whole)
	first := source.Push(t, "built/web:1", "linux/amd64", "linux/arm64")
	second, third := source.Push(t, "built/web:2", "linux/amd64"), source.Push(t, "built/web:3", "linux/amd64")
	source.Proxy.Fail(func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return user+":"+password != "reader:hush-hush" || r.Method != http.MethodGet && r.Method != http.MethodHead
	}, -1, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	data, job := t.TempDir(), 0
	run := func(digest, operation, keep string) map[string]wire.FullOutput {
		t.Helper()
		log, p := plugintest.NewLog(), newBuilt(t, data, source, digest)
		s := builtSpec(target, operation)
		job++
		s.Job = fairlead.JobID(fmt.Sprintf("job_%d", job))
		if keep != "" {
			s.Options = map[string]events.SpecVar{"keep": {Value: json.RawMessage(keep)}}
		}
		res, err := p.Run(t.Context(), s, plugintest.Env(t, data, string(s.Job)+"-1", log, nil, s))
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		s.Operation, s.Plan, s.Options = strings.TrimPrefix(operation, "plan-"), &events.PlanRef{Job: s.Job, Digest: res.Plan.Digest}, nil
		if operation == "plan" {
			s.Operation = "apply"
		}
		if res, err = p.Run(t.Context(), s, plugintest.Env(t, data, string(s.Job)+"-2", log, nil, s)); err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if strings.Contains(log.String(), "hush") {
			t.Errorf("the log has the login:\n%s", log)
		}
		return res.Outputs
	}
	outputs := run(first, "plan", "1")
	if string(outputs["digest"].Value) != `"`+first+`"` || string(outputs["reference"].Value) != `"`+target.Host+"/ins_1/web-1@"+first+`"` {
		t.Errorf("outputs %+v", outputs)
	}
	run(second, "plan", "1")
	if tags := target.Tags(t, "ins_1/web-1"); len(tags) != 2 {
		t.Errorf("with one image to keep there are %v", tags)
	}
	run(third, "plan", "0")
	if tags := target.Tags(t, "ins_1/web-1"); len(tags) != 1 {
		t.Errorf("with no image to keep there are %v", tags)
	}
	run(third, "plan-destroy", "")
	if tags := target.Tags(t, "ins_1/web-1"); len(tags) != 0 {
		t.Errorf("after the destroy there are %v", tags)
	}
}

func TestImageOfABuildHasTypedReasons(t *testing.T) {
	source, target := memorytest.Start(t, memorytest.Whole), memorytest.Start(t, memorytest.Whole)
	digest := source.Push(t, "built/web:1", "linux/amd64")
	for name, tc := range map[string]struct {
		change func(*built, *plugin.Spec)
		want   fairlead.Reason
	}{
		"an image that is gone": {func(b *built, _ *plugin.Spec) { b.image.Digest = "sha256:" + strings.Repeat("1", 64) }, fairlead.ReasonImageMissing},
		"no login":              {func(b *built, _ *plugin.Spec) { b.login = "" }, fairlead.ReasonSpecInvalid},
		"no repository":         {func(b *built, _ *plugin.Spec) { b.image.Repository = "" }, fairlead.ReasonSpecInvalid},
		"a number that is too large": {func(_ *built, s *plugin.Spec) {
			s.Options = map[string]events.SpecVar{"keep": {Value: json.RawMessage("101")}}
		}, fairlead.ReasonSpecInvalid},
		"a number that is text": {func(_ *built, s *plugin.Spec) {
			s.Options = map[string]events.SpecVar{"keep": {Value: json.RawMessage(`"x"`)}}
		}, fairlead.ReasonSpecInvalid},
		"no registry of the install":   {func(_ *built, s *plugin.Spec) { s.Registry = nil }, fairlead.ReasonSpecInvalid},
		"an address that is no server": {func(b *built, _ *plugin.Spec) { b.image.Repository = "not a name" }, fairlead.ReasonSpecInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			data, b, s := t.TempDir(), newBuilt(t, t.TempDir(), source, digest), builtSpec(target, "plan")
			tc.change(&b, &s)
			_, err := b.Run(t.Context(), s, plugintest.Env(t, data, "job_1-1", plugintest.NewLog(), nil, s))
			if plugin.ReasonOf(err) != tc.want {
				t.Errorf("%v (%s), want %s", err, plugin.ReasonOf(err), tc.want)
			}
		})
	}
}

// A vendor who deploys to the account of the control plane has both repositories in one registry of ECR. The login of the job's
// role may not read the image, and that of the image may not write the copy.
func TestImageInTheRegistryOfTheInstallHasItsOwnLogin(t *testing.T) {
	const host = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
	t.Setenv("IMAGE_LOGIN", "AWS:reads")
	for kind, want := range map[string]string{"ecr": host + ":443", "oci": host} {
		c := &connection{target: mirror.Target{URL: "https://" + host, Repository: "ins_1/web"}, logins: map[string]mirror.Login{}, cas: map[string]string{}}
		if err := c.useBuilt(&pluginprotocol.Image{URL: "https://" + host, Repository: "app/app_1/web/built", Digest: "sha256:" + strings.Repeat("1", 64), Login: "IMAGE_LOGIN"}, kind); err != nil {
			t.Fatal(err)
		}
		src, err := mirror.Built(*c.built, "sha256:"+strings.Repeat("1", 64), nil)
		if err != nil || src.Image.Registry != want || c.logins[want] != (mirror.Login{Username: "AWS", Password: "reads"}) || len(c.logins) != 1 {
			t.Errorf("%s: the image is %s, the logins are %v, %v", kind, src.Image.CommonName(), c.logins, err)
		}
	}
}
