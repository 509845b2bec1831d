package terraform_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/tofu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow is a module that ignores the interrupt and keeps the tool's output open.
const slow = `
resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "trap '' INT TERM; echo working; while :; do sleep 1000; done"
  }
}
`

var sources = map[string]map[string]string{
	"good": {"main.tf": `resource "terraform_data" "x" {}`},
	"slow": {"main.tf": slow},
}

func spec(n int, digest string) plugin.Spec {
	return plugin.Spec{Plugin: terraform.Name, Operation: "plan", Job: fairlead.JobID(fmt.Sprintf("job_%d", n)), Epoch: 1, Grace: 1,
		Artifact: &events.ArtifactRef{Digest: digest}, State: &events.StateRef{Storage: "local", Key: fmt.Sprintf("ins_%d/web", n)}}
}

func TestPlugin(t *testing.T) {
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			plugintest.Run(t, plugintest.Subject{
				New: func(data string) plugin.Plugin {
					return terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
				},
				Good: func(n int) plugin.Spec { return spec(n, "good") },
				Slow: func(t *testing.T, data string) plugin.Spec {
					sp := spec(9, "slow")
					p := terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
					res, err := p.Run(t.Context(), sp, plugintest.Env(t, data, "job_9-1", plugintest.NewLog(), sources, sp))
					if err != nil {
						t.Fatal(err)
					}
					sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: sp.Job, Digest: res.Plan.Digest}
					return sp
				},
				Sources: sources,
			})
		})
	}
}

// terraform-exec asks a tool for its version before `init`; the answer must not get into the log.
func TestLogHasNoVersionAsJSON(t *testing.T) {
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			p := terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
			for n := range 2 { // the first round runs `init`, the second uses its stored result
				sp, log := spec(n, "good"), plugintest.NewLog()
				res, err := p.Run(t.Context(), sp, plugintest.Env(t, data, fmt.Sprintf("job_%d-1", n), log, sources, sp))
				if err != nil {
					t.Fatalf("error %v, log:\n%s", err, log)
				}
				sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: sp.Job, Digest: res.Plan.Digest}
				if _, err := p.Run(t.Context(), sp, plugintest.Env(t, data, fmt.Sprintf("job_%d-2", n), log, sources, sp)); err != nil {
					t.Fatalf("error %v, log:\n%s", err, log)
				}
				if strings.Contains(log.String(), `"terraform_version"`) || !strings.Contains(log.String(), "terraform_data.x") {
					t.Errorf("the log of round %d:\n%s", n, log)
				}
			}
		})
	}
}
