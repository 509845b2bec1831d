package terraform_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/runner/workspace"
	"github.com/fairlead/fairlead/test/tofu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow is a module that ignores the interrupt and keeps the tool's output open.
const slow = `
variable "password" { sensitive = true }

resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "trap '' INT TERM; echo working; while :; do sleep 1000; done"
  }
}
`

var sources = map[string]map[string]string{
	"good": {"main.tf": `resource "terraform_data" "x" {}`},
	"slow": {"main.tf": slow},
	"typed": {"main.tf": `
output "number" { value = 1234567890123456 }
output "text" {
  value     = "a\"b"
  sensitive = true
}
output "list" { value = [1, null, { a = true }] }
output "flag" { value = false }
`},
}

func spec(n int, digest string) plugin.Spec {
	return plugin.Spec{Plugin: terraform.Name, Operation: "plan", Job: fairlead.JobID(fmt.Sprintf("job_%d", n)), Epoch: 1, Grace: 1,
		Artifact: &events.ArtifactRef{Digest: digest}, State: &events.StateRef{Storage: "local", Key: fmt.Sprintf("ins_%d/web", n)}}
}

// approved plans the spec, and returns the spec of the apply.
func approved(t *testing.T, data, path string, sp plugin.Spec) plugin.Spec {
	t.Helper()
	p := terraform.New(terraform.Config{Data: data, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
	res, err := p.Run(t.Context(), sp, plugintest.Env(t, data, string(sp.Job)+"-1", plugintest.NewLog(), sources, sp))
	if err != nil {
		t.Fatal(err)
	}
	if err := workspace.Remove(data, string(sp.Job)+"-1"); err != nil {
		t.Fatal(err)
	}
	sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: sp.Job, Digest: res.Plan.Digest}
	return sp
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
					sp.Vars = map[string]events.SpecVar{"password": {Value: json.RawMessage(`"never in argv"`), Sensitive: true}}
					return approved(t, data, path, sp)
				},
				Outputs: func(t *testing.T, data string) (plugin.Spec, map[string]wire.FullOutput) {
					return approved(t, data, path, spec(8, "typed")), map[string]wire.FullOutput{"number": {Value: json.RawMessage("1234567890123456")}, "text": {Value: json.RawMessage(`"a\"b"`), Sensitive: true},
						"list": {Value: json.RawMessage(`[1,null,{"a":true}]`)}, "flag": {Value: json.RawMessage("false")}}
				},
				// The tool locks and writes the state. The plan stays until it is applied.
				Keeps: func(path string) bool {
					return strings.Contains(path, "/state/ins_9/") || strings.Contains(path, "/salvage/")
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
