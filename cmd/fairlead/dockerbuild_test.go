package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/tools/buildkitd/daemon"
	"github.com/fairlead/fairlead/tools/kotool"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// TestDockerBuild runs the scripts of apps with a Dockerfile or a Go program: `fairlead dev` with its own registry, the program of the
// plugin, a real BuildKit, and ko.
func TestDockerBuild(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	tool := toolOrSkip(t)
	var server daemon.Server
	t.Cleanup(server.Stop)
	address, bin := server.Host(t)
	compiler := kotool.Bin(t)
	base := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(base.Close)
	host := strings.TrimPrefix(base.URL, "http://")
	generator := imagebuildtest.Generator(t, host)
	static := imagebuildtest.Base(t, host+"/static", nil, "linux/amd64", "linux/arm64")
	plugins := filepath.Dir(program.Build(t, "runner/images"))
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("stories", func(t *testing.T) {
		p := params("dockerbuild")
		p.Cmds["ready"], p.Cmds["id"], p.Cmds["replace"] = ready, id, replace
		p.Cmds["repositories"], p.Cmds["commit"] = repositories, commit
		p.Cmds["built"], p.Cmds["image"], p.Cmds["push-status"], p.Cmds["statements"] = built, image, pushStatus, statements
		setup := p.Setup
		p.Setup = func(env *testscript.Env) error {
			env.Setenv("FAIRLEAD_TOFU", tool)
			env.Setenv("FAIRLEAD_PLUGINS", plugins)
			env.Setenv("FAIRLEAD_REGISTRY", program.Build(t, "cmd/fairlead-registry"))
			env.Setenv("EXAMPLES", examples)
			env.Setenv("BUILDKIT", address)
			env.Setenv("GENERATOR", generator)
			env.Setenv("BASE", static)
			env.Setenv("REGISTRY", imagetest.Start(t).Host)
			env.Setenv("PATH", strings.Join([]string{bin, compiler, env.Getenv("PATH")}, string(filepath.ListSeparator)))
			return setup(env)
		}
		testscript.Run(t, p)
	})
}

// built sets a variable to the digest of a component's artifact in the newest version, from what `fairlead app show --json`
// has printed: "built VARIABLE COMPONENT".
func built(ts *testscript.TestScript, neg bool, args []string) {
	var app struct {
		Version struct {
			Components []struct{ Name, Artifact string }
		}
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &app))
	i := slices.IndexFunc(app.Version.Components, func(c struct{ Name, Artifact string }) bool { return c.Name == args[1] })
	if neg || i < 0 {
		ts.Fatalf("usage: built VARIABLE COMPONENT; components: %+v", app.Version.Components)
	}
	ts.Setenv(args[0], app.Version.Components[i].Artifact)
}

// repositoryURL returns the URL of the repository in "HOST/REPOSITORY@DIGEST", and the digest.
func repositoryURL(reference string) (url, digest string) {
	host, rest, _ := strings.Cut(reference, "/")
	repository, digest, _ := strings.Cut(rest, "@")
	return "http://" + host + "/v2/" + repository, digest
}

// statements compares the types of the statements that are referrers of an image, and writes the content of the last one to a
// file: "statements FILE HOST/REPOSITORY@DIGEST TYPE...".
func statements(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: statements FILE HOST/REPOSITORY@DIGEST TYPE...")
	}
	url, digest := repositoryURL(args[1])
	type entry struct{ ArtifactType, Digest string }
	var list struct{ Manifests []entry }
	ts.Check(json.Unmarshal(ask(ts, http.MethodGet, url+"/referrers/"+digest, http.StatusOK), &list))
	slices.SortFunc(list.Manifests, func(a, b entry) int { return strings.Compare(a.ArtifactType, b.ArtifactType) })
	var types []string
	var manifest struct{ Layers []struct{ Digest string } }
	for _, m := range list.Manifests {
		types = append(types, m.ArtifactType)
		ts.Check(json.Unmarshal(ask(ts, http.MethodGet, url+"/manifests/"+m.Digest, http.StatusOK), &manifest))
	}
	slices.Sort(args[2:])
	if !slices.Equal(types, args[2:]) {
		ts.Fatalf("the image has the statements %q, want %q", types, args[2:])
	}
	content := append(ask(ts, http.MethodGet, url+"/blobs/"+manifest.Layers[0].Digest, http.StatusOK), '\n') // as the CLI ends a file
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), content, 0o600))
}

// image compares the content of an image in the registry of `fairlead dev`: "image HOST/REPOSITORY@DIGEST LABEL=VALUE". The image has one
// platform, and an index.
func image(ts *testscript.TestScript, neg bool, args []string) {
	name, want, _ := strings.Cut(args[1], "=")
	var index struct{ Manifests []struct{ Digest string } }
	var manifest struct{ Config struct{ Digest string } }
	url, digest := repositoryURL(args[0])
	ts.Check(json.Unmarshal(ask(ts, http.MethodGet, url+"/manifests/"+digest, http.StatusOK), &index))
	ts.Check(json.Unmarshal(ask(ts, http.MethodGet, url+"/manifests/"+index.Manifests[0].Digest, http.StatusOK), &manifest))
	var config struct {
		Config struct{ Labels map[string]string }
	}
	ts.Check(json.Unmarshal(ask(ts, http.MethodGet, url+"/blobs/"+manifest.Config.Digest, http.StatusOK), &config))
	if got := config.Config.Labels[name]; neg || got != want {
		ts.Fatalf("the image has %s=%q, want %q", name, got, want)
	}
}

// pushStatus sends requests that begin a push, and a push of a manifest, with the administrator's token, and compares the
// status: "push-status STATUS HOST/REPOSITORY".
func pushStatus(ts *testscript.TestScript, neg bool, args []string) {
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	host, repository, ok := strings.Cut(args[1], "/")
	if neg || !ok {
		ts.Fatalf("usage: push-status STATUS HOST/REPOSITORY")
	}
	ask(ts, http.MethodPost, "http://"+host+"/v2/"+repository+"/blobs/uploads/", status)
	ask(ts, http.MethodPut, "http://"+host+"/v2/"+repository+"/manifests/latest", status)
	ask(ts, http.MethodDelete, "http://"+host+"/v2/"+repository+"/manifests/latest", status)
}

// ask sends a request with the administrator's token.
func ask(ts *testscript.TestScript, method, url string, status int) []byte {
	token, err := os.ReadFile(ts.Getenv("TOKEN_FILE"))
	ts.Check(err)
	req, err := http.NewRequest(method, url, bytes.NewReader(nil))
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json")
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if resp.StatusCode != status {
		ts.Fatalf("%s %s is answered with %s, want %d: %s", method, url, resp.Status, status, text)
	}
	return text
}
