package terraform_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// quoting is a module whose provisioner appends to the file counter for each run, prints says on standard error, and
// fails.
func quoting(when, counter, stderr string) map[string]string {
	return map[string]string{"main.tf": fmt.Sprintf(`
resource "terraform_data" "x" {
  provisioner "local-exec" {
    %s
    command = "echo ran >> '%s'; printf '%%b' \"$SAYS\" >&2; exit 1"
    environment = { SAYS = %q }
  }
}
`, when, counter, stderr)}
}

// A failing provisioner may quote another tool's advice to run init. The plugin must not run the apply again, and must not
// report the failure as one before any change.
func TestProvisionerOutputDoesNotRepeatAnApply(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	for name, path := range tofu.Tools(t) {
		for what, stderr := range map[string]string{
			"init":                    `Error: please run "tofu init"`,
			"init, as a tool":         `\n\nError: Backend initialization required, please run "terraform init"\n\nReason: x\n`,
			"required plugins":        `\nError: Required plugins are not installed\n\nRun tofu init\n`,
			"a stale plan":            `\n\nError: Saved plan is stale\n\nx\n`,
			"a state lock":            `\nError: Error acquiring the state lock\n`,
			"a failed initialization": `\nError: Error initializing x\n`,
		} {
			for _, operation := range []string{"apply", "destroy"} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, operation, what), func(t *testing.T) {
					data, counter := t.TempDir(), filepath.Join(t.TempDir(), "runs")
					when := ""
					if operation == "destroy" {
						when = "when = destroy"
					}
					sources := map[string]map[string]string{"quoting": quoting(when, counter, stderr)}
					p := terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
					job := 0
					run := func(operation string, plan *plugin.Result) (plugin.Result, error) {
						job++
						sp := spec(1, "quoting")
						sp.Job, sp.Operation = fairlead.JobID(fmt.Sprintf("job_%d", job)), operation
						if plan != nil {
							sp.Plan = &events.PlanRef{Job: fairlead.JobID(fmt.Sprintf("job_%d", job-1)), Digest: plan.Plan.Digest}
						}
						log := plugintest.NewLog()
						res, err := p.Run(t.Context(), sp, plugintest.Env(t, data, fmt.Sprintf("job_%d-1", job), log, sources, sp))
						if t.Failed() || err != nil {
							t.Logf("%s:\n%s", operation, log)
						}
						return res, err
					}
					plan, err := run("plan", nil)
					if err != nil {
						t.Fatal(err)
					}
					res, err := run("apply", &plan)
					if operation == "destroy" {
						if err != nil {
							t.Fatal(err)
						}
						if plan, err = run("plan-destroy", nil); err != nil {
							t.Fatal(err)
						}
						res, err = run("destroy", &plan)
					}
					if plugin.ReasonOf(err) != fairlead.ReasonToolFailed || !res.Mutated {
						t.Errorf("reason %q, mutated %v: %v", plugin.ReasonOf(err), res.Mutated, err)
					}
					runs, err := os.ReadFile(counter)
					if n := strings.Count(string(runs), "ran"); err != nil || n != 1 {
						t.Errorf("the provisioner ran %d times, %v", n, err)
					}
				})
			}
		}
	}
}
