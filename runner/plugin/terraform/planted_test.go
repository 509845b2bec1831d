package terraform_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/program"
)

// deploy plans and applies component n.
func deploy(t *testing.T, p plugin.Plugin, data string, n int, sources map[string]map[string]string) {
	t.Helper()
	sp := spec(n, "bare")
	plan, err := run(t, p, data, sp, sources)
	if err != nil {
		t.Fatal(err)
	}
	sp.Operation, sp.Plan, sp.Epoch = "apply", &events.PlanRef{Job: sp.Job, Digest: plan.Plan.Digest}, 2
	if _, err := run(t, p, data, sp, sources); err != nil {
		t.Fatal(err)
	}
}

// eachStoredFact calls f with each stored file of facts about tools. All jobs share these files.
func eachStoredFact(t *testing.T, data string, f func(path string, content []byte)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(filepath.Join(data, "tools"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			n++
			f(path, b)
		}
		return err
	})
	if err != nil || n == 0 {
		t.Fatalf("%d files are stored: %v", n, err)
	}
}

var bare = map[string]map[string]string{"bare": {"main.tf": `resource "terraform_data" "x" {}`}}

// One job must not be able to change the launcher that later jobs of other installs run.
func TestNoJobRunsAPlantedLauncher(t *testing.T) {
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			data, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
			p := func() plugin.Plugin {
				return terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
			}
			deploy(t, p(), data, 1, bare)
			eachStoredFact(t, data, func(path string, b []byte) {
				// Plant a command in a script, and in a text that is put into a script.
				planted := bytes.ReplaceAll(b, []byte(`terraform_version":"`), []byte(`terraform_version":"'; touch '`+ran+`'; '`))
				if bytes.HasPrefix(b, []byte("#!")) {
					planted = bytes.ReplaceAll(b, []byte("; exit 0; }"), []byte(`; }; touch '`+ran+`'; [ "$1" = version ] && { true; exit 0; }`))
				}
				program.Write(t, path, planted)
			})
			deploy(t, p(), data, 2, bare)
			if _, err := os.Stat(ran); err == nil {
				t.Error("the job of another install ran the planted command")
			}
		})
	}
}

// Another job may alter the stored result of `init`, which sets the backend and which the tool trusts. The next job must
// not use it.
func TestAlteredSnapshotMovesNoState(t *testing.T) {
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			data, elsewhere := t.TempDir(), t.TempDir()
			p := terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
			deploy(t, p, data, 1, bare)
			altered := 0
			eachStoredFact(t, data, func(path string, b []byte) {
				planted := bytes.ReplaceAll(b, []byte("../state/terraform.tfstate"), []byte(elsewhere+"/x.tfstate"))
				if !bytes.Equal(planted, b) {
					altered++
				}
				if err := os.WriteFile(path, planted, 0o600); err != nil {
					t.Fatal(err)
				}
			})
			if altered == 0 {
				t.Fatal("no backend is stored")
			}
			deploy(t, p, data, 2, bare)
			if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
				t.Errorf("the state went to %v, %v", left, err)
			}
			if _, err := os.Stat(filepath.Join(data, "state", spec(2, "bare").State.Key, "terraform.tfstate")); err != nil {
				t.Errorf("the state is not in its own place: %v", err)
			}
			// A valid stored result is used: making it again costs a run of the tool.
			log, sp := plugintest.NewLog(), spec(3, "bare")
			if _, err := p.Run(t.Context(), sp, plugintest.Env(t, data, "job_3-1", log, bare, sp)); err != nil || strings.Contains(log.String(), "nitializing") {
				t.Errorf("the plan does not use the stored result: error %v, log:\n%s", err, log)
			}
		})
	}
}
