package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/tools/buildkitd/daemon"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// TestDockerBuild runs the scripts of apps with a Dockerfile: `fairlead dev` with its own registry, the program of the plugin,
// and a real BuildKit.
func TestDockerBuild(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	tool := toolOrSkip(t)
	var server daemon.Server
	t.Cleanup(server.Stop)
	address, bin := server.Host(t)
	plugins := filepath.Dir(program.Build(t, "runner/images"))
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("stories", func(t *testing.T) {
		p := params("dockerbuild")
		p.Cmds["ready"], p.Cmds["id"], p.Cmds["replace"] = ready, id, replace
		p.Cmds["repositories"], p.Cmds["commit"] = repositories, commit
		p.Cmds["built"], p.Cmds["image"], p.Cmds["push-status"] = built, image, pushStatus
		setup := p.Setup
		p.Setup = func(env *testscript.Env) error {
			env.Setenv("FAIRLEAD_TOFU", tool)
			env.Setenv("FAIRLEAD_PLUGINS", plugins)
			env.Setenv("FAIRLEAD_REGISTRY", program.Build(t, "cmd/fairlead-registry"))
			env.Setenv("EXAMPLES", examples)
			env.Setenv("BUILDKIT", address)
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
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

// image compares the content of an image in the registry of `fairlead dev`: "image HOST/REPOSITORY@DIGEST LABEL=VALUE".
func image(ts *testscript.TestScript, neg bool, args []string) {
	name, want, _ := strings.Cut(args[1], "=")
	var manifest struct{ Config struct{ Digest string } }
	host, rest, _ := strings.Cut(args[0], "/")
	repository, digest, _ := strings.Cut(rest, "@")
	ts.Check(json.Unmarshal(ask(ts, http.MethodGet, "http://"+host+"/v2/"+repository+"/manifests/"+digest, http.StatusOK), &manifest))
	var config struct {
		Config struct{ Labels map[string]string }
	}
	ts.Check(json.Unmarshal(ask(ts, http.MethodGet, "http://"+host+"/v2/"+repository+"/blobs/"+manifest.Config.Digest, http.StatusOK), &config))
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
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json")
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
