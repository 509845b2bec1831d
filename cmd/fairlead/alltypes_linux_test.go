package main_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/test/alltypes"
	"github.com/fairlead/fairlead/test/canary"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
)

// typesWorld is a world whose runner can deploy each type, with the story of an install.
type typesWorld struct {
	*e2e.World
	*alltypes.Story
}

// newTypesWorld starts the programs and publishes the app.
func newTypesWorld(t *testing.T, server *kube.Server, env ...string) *typesWorld {
	t.Helper()
	kubeconfig := server.Kubeconfig(t)
	cluster, err := kube.NewClient(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	plugins := program.Copies(t, "runner/kubernetes", "runner/images")
	w := &typesWorld{}
	w.World = e2e.New(t, e2e.Build(t), e2e.Options{Storage: "http", ServerEnv: []string{"FAIRLEAD_REGISTRY=" + program.Build(t, "cmd/fairlead-registry")}, PassEnv: []string{"KUBECONFIG"}, AgentEnv: append(env,
		"KUBECONFIG="+kubeconfig, "FAIRLEAD_PLUGINS="+plugins,
		"PATH=/usr/bin:"+os.Getenv("PATH"), // first the system's own python3, which a confined job can read
	)})
	w.Story = &alltypes.Story{T: t, Name: "acme", CLI: w.Must, API: w.Client, Cluster: cluster, Vendor: imagetest.Start(t),
		Folder: filepath.Join(t.TempDir(), "files"), HasImage: func(in, digest string) bool { return hasImage(t, w.World, in, digest) }}
	w.Must("runner", "update", "local", "--set", "runner_configuration.builds=true")
	w.Builds = true
	w.Publish("../..")
	return w
}

// newTypesCluster returns a cluster for the story alone, because the story compares all objects of the cluster.
func newTypesCluster(t *testing.T) *kube.Server {
	server := &kube.Server{Private: true}
	t.Cleanup(server.Stop)
	return server
}

// TestOneInstallsStoryWithAllTypes runs the story of one install of examples/all-types with the real programs, a real API server,
// real registries and the real tool. A person approves each plan. At the end nothing is left. The install has a key: after each phase, the
// control plane has the password nowhere, also not in what its keys open.
func TestOneInstallsStoryWithAllTypes(t *testing.T) {
	w := newTypesWorld(t, newTypesCluster(t), "FAIRLEAD_MAKE_INSTALL_KEY=true")
	search := canary.New(map[string]string{"password": alltypes.Password, "kind": "script"}, keysOfTheControlPlane(t, w.ServerData)...)
	w.Settled = func(phase string) {
		found := map[string]bool{}
		note := func(place string, content []byte) {
			for name := range search.In(content) {
				found[name] = true
				if name == "password" {
					t.Errorf("after the phase %s the password is in the place %s", phase, place)
				}
			}
		}
		stored(t, w.ServerData, note)
		note("the server's log", []byte(w.Server.Output()))
		if !found["kind"] {
			t.Errorf("after the phase %s the search does not reach the table", phase)
		}
	}
	w.Create()
	state := false
	w.Meanwhile = func() { state = state || len(w.files(t)) > 0 }
	did := w.Run()
	w.checkNothingLeft(t)
	for phase, want := range map[string]int{"create": len(w.Approvals()), "change": len(w.Approvals()), "run": 0, "teardown": len(w.Approvals())} {
		if got := did[phase]; len(got) != want || slices.ContainsFunc(got, func(name string) bool { return name != approve }) {
			t.Errorf("in the phase %s the person ran %q, want %d approvals", phase, got, want)
		}
	}
	if !state {
		t.Error("no file of the install was seen in the folder of the control plane, want the state of the module")
	}
}

// checkNothingLeft fails the test if a file or a process of the install is left. It ignores files of the control plane in these
// folders.
func (w *typesWorld) checkNothingLeft(t *testing.T, without ...string) {
	t.Helper()
	e2e.Until(t, "no folder and no process of a job is left", func() bool {
		steps, _ := filepath.Glob(filepath.Join(w.RunnerData, "steps", "*")) // the patterns are valid
		work, _ := filepath.Glob(filepath.Join(w.RunnerData, "work", "*"))
		return len(steps)+len(work)+len(w.Strays()) == 0
	})
	if files := w.files(t, without...); len(files) > 0 {
		t.Errorf("files of the install are left: %q", files)
	}
}

// files returns the files of the control plane and the runner that have the identifier of the install in their path, without the
// content of the registry of images, which collects removed images later, and without these folders of the control plane.
func (w *typesWorld) files(t *testing.T, without ...string) (found []string) {
	t.Helper()
	skipped := map[string]bool{filepath.Join(w.ServerData, "images"): true}
	for _, name := range without {
		skipped[filepath.Join(w.ServerData, name)] = true
	}
	for _, data := range []string{w.ServerData, w.RunnerData} {
		err := filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // a program removes its own files meanwhile
				return nil
			case err == nil && skipped[path]:
				return fs.SkipDir
			case err == nil && !entry.IsDir() && strings.Contains(path, w.ID):
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// hasImage reports whether the registry of the control plane has an image of the install.
func hasImage(t *testing.T, w *e2e.World, install, digest string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, w.Client.URL()+"/v2/images/default/"+install+"/web/manifests/"+digest, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.Client.Token())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNotFound {
		t.Fatalf("the registry answers %s", res.Status)
	}
	return res.StatusCode == http.StatusOK
}
