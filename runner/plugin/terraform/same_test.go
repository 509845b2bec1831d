package terraform_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// deployed is a component that the tests plan and apply like a deployment.
type deployed struct {
	data    string
	p       plugin.Plugin
	spec    plugin.Spec
	sources map[string]map[string]string
}

func newDeployed(t *testing.T, tool, cli string, module map[string]string, vars map[string]string) *deployed {
	t.Helper()
	d := &deployed{data: t.TempDir(), spec: spec(1, "module"), sources: map[string]map[string]string{"module": module}}
	d.p = terraform.New(terraform.Config{Data: d.data, Tool: tool, CLIConfig: cli, Environ: []string{"PATH=" + os.Getenv("PATH")}})
	d.spec.Epoch = 0
	d.spec.Vars = map[string]events.SpecVar{}
	for name, v := range vars {
		d.spec.Vars[name] = events.SpecVar{Value: json.RawMessage(v)}
	}
	return d
}

// run runs the operation as the next job.
func (d *deployed) run(t *testing.T, operation string, plan *plugin.Result) (plugin.Result, error) {
	t.Helper()
	d.spec.Epoch++
	sp := d.spec
	sp.Operation = operation
	if plan != nil {
		sp.Plan = &events.PlanRef{Job: d.spec.Job, Digest: plan.Plan.Digest}
	} else {
		d.spec.Job = fairlead.JobID("job_plan_" + string('a'+rune(d.spec.Epoch)))
		sp.Job = d.spec.Job
	}
	return run(t, d.p, d.data, sp, d.sources)
}

// deploy plans and applies.
func (d *deployed) deploy(t *testing.T) plugin.Result {
	t.Helper()
	plan, err := d.run(t, "plan", nil)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	if plan.Plan.NoOp {
		t.Fatal("the plan has no changes")
	}
	applied, err := d.run(t, "apply", &plan)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return applied
}

// archiveMirror builds the archive provider into a mirror on disk for the default hosts of both tools. It returns the CLI
// configuration with that mirror.
func archiveMirror(t *testing.T) string {
	t.Helper()
	const version = "0.0.1"
	dir := t.TempDir()
	built := filepath.Join(dir, "provider")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../tools/providers", "-ldflags=-s -w", "-o", built, "./archive")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v\n%s", err, out)
	}
	for _, host := range []string{"registry.opentofu.org", "registry.terraform.io"} {
		at := filepath.Join(dir, "mirror", host, "hashicorp", "archive", version, runtime.GOOS+"_"+runtime.GOARCH)
		if err := errors.Join(os.MkdirAll(at, 0o755), os.Link(built, filepath.Join(at, "terraform-provider-archive_v"+version))); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "tools.tfrc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", filepath.Join(dir, "mirror"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// An apply needs files that its plan wrote to the source folder, such as the archive of a function's code.
func TestApplyGetsTheFilesThatItsPlanWrote(t *testing.T) {
	config := archiveMirror(t)
	module := map[string]string{"index.js": "exports.handler = 1", "main.tf": `
terraform {
  required_providers { archive = { source = "hashicorp/archive" } }
}
data "archive_file" "code" {
  source_file = "${path.module}/index.js"
  output_path = "${path.module}/code.zip"
}
resource "terraform_data" "function" {
  input = data.archive_file.code.output_sha256
  provisioner "local-exec" { command = "cp '${data.archive_file.code.output_path}' deployed.zip && wc -c < deployed.zip && cp deployed.zip \"$OUT\"" }
}
output "sum" { value = terraform_data.function.output }
`}
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			d := newDeployed(t, path, config, module, nil)
			out := filepath.Join(t.TempDir(), "zip")
			d.spec.Env = map[string]string{"OUT": out}
			plan, err := d.run(t, "plan", nil)
			if err != nil {
				t.Fatal(err)
			}
			// The approved digest covers the files.
			saved := filepath.Join(d.data, "plans", string(d.spec.Job), "plan")
			b, err := os.ReadFile(saved)
			if err != nil || !bytes.Contains(b, []byte("code.zip")) {
				t.Fatalf("the saved plan lacks code.zip: %v", err)
			}
			altered := bytes.Replace(b, []byte("index.js"), []byte("other.js"), 1)
			if err := os.WriteFile(saved, altered, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := d.run(t, "apply", &plan); plugin.ReasonOf(err) != fairlead.ReasonPlanDigest {
				t.Errorf("an altered archive was not refused: %v", err)
			}
			if err := os.WriteFile(saved, b, 0o600); err != nil {
				t.Fatal(err)
			}
			applied, err := d.run(t, "apply", &plan)
			if err != nil {
				t.Fatal(err)
			}
			if zip, err := os.ReadFile(out); err != nil || !bytes.Contains(zip, []byte("index.js")) {
				t.Errorf("deployed %d bytes, %v", len(zip), err)
			}
			if sum := string(applied.Outputs["sum"].Value); len(sum) != 66 {
				t.Errorf("the output is %s", sum)
			}
			if again, err := d.run(t, "plan", nil); err != nil || !again.Plan.NoOp {
				t.Errorf("a second deployment has changes: %+v, %v", again.Plan, err)
			}
		})
	}
}

// variableCase is a module that gets variables in one of several ways.
type variableCase struct {
	module map[string]string
	vars   map[string]string
	want   string // the value of the output o
}

func variableCases() map[string]variableCase {
	return map[string]variableCase{
		"a file of the module sets the variable too": {map[string]string{"x.auto.tfvars": `x = "of the file"`,
			"main.tf": "variable \"x\" {}\nresource \"terraform_data\" \"a\" { input = var.x }\noutput \"o\" { value = terraform_data.a.output }\n"},
			map[string]string{"x": `"given"`}, `"given"`},
		"terraform.tfvars sets the variable too": {map[string]string{"terraform.tfvars": `x = "of the file"`,
			"main.tf": "variable \"x\" {}\nresource \"terraform_data\" \"a\" { input = var.x }\noutput \"o\" { value = terraform_data.a.output }\n"},
			map[string]string{"x": `"given"`}, `"given"`},
		"an ephemeral variable": {map[string]string{
			"main.tf": "variable \"x\" {\n  type = string\n  ephemeral = true\n}\nresource \"terraform_data\" \"a\" {\n  input = 1\n  provisioner \"local-exec\" {\n    command = \"test \\\"$X\\\" = given\"\n    environment = { X = var.x }\n  }\n}\noutput \"o\" { value = terraform_data.a.output }\n"},
			map[string]string{"x": `"given"`}, `1`},
		"a module's source": {map[string]string{
			"main.tf":   "variable \"x\" {}\nmodule \"m\" { source = var.x }\nresource \"terraform_data\" \"a\" { input = module.m.o }\noutput \"o\" { value = terraform_data.a.output }\n",
			"m/main.tf": "output \"o\" { value = 7 }\n"},
			map[string]string{"x": `"./m"`}, `7`},
		"the passphrase of the state": {map[string]string{"main.tf": `
variable "x" { type = string }
terraform {
  encryption {
    key_provider "pbkdf2" "k" { passphrase = var.x }
    method "aes_gcm" "m" { keys = key_provider.pbkdf2.k }
    state { method = method.aes_gcm.m }
    plan { method = method.aes_gcm.m }
  }
}
resource "terraform_data" "a" { input = 3 }
output "o" { value = terraform_data.a.output }
`}, map[string]string{"x": `"a passphrase that is long enough"`}, `3`},
	}
}

// deployTwice deploys, plans again, expects no changes, and tears down.
func (tc variableCase) deployTwice(t *testing.T, tool string) {
	t.Helper()
	d := newDeployed(t, tool, "", tc.module, tc.vars)
	applied := d.deploy(t)
	if got := string(applied.Outputs["o"].Value); got != tc.want {
		t.Errorf("the output is %s, want %s", got, tc.want)
	}
	d.expectNoChanges(t)
	d.tearDown(t)
}

// expectNoChanges plans, and fails the test if the plan has changes.
func (d *deployed) expectNoChanges(t *testing.T) {
	t.Helper()
	again, err := d.run(t, "plan", nil)
	if err != nil || !again.Plan.NoOp {
		t.Errorf("a second deployment has changes: %+v, %v", again.Plan, err)
	}
}

func (d *deployed) tearDown(t *testing.T) {
	t.Helper()
	plan, err := d.run(t, "plan-destroy", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.run(t, "destroy", &plan); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

// Each of these modules works with the tool alone. The plugin must pass the variables to init, plan and apply.
func TestVariablesReachInitPlanAndApply(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	opentofu := map[string]bool{"a module's source": true, "the passphrase of the state": true}
	for what, tc := range variableCases() {
		t.Run(what, func(t *testing.T) {
			for name, path := range tofu.Tools(t) {
				if opentofu[what] && name == "terraform" {
					continue // Terraform does not support it
				}
				t.Run(name, func(t *testing.T) { tc.deployTwice(t, path) })
			}
		})
	}
}

// A module that uses its own path must have the same path in every job: otherwise every apply fails, and every plan
// replaces resources.
func TestModulePathIsTheSameInEveryJob(t *testing.T) {
	module := map[string]string{"main.tf": `
resource "terraform_data" "a" { input = { cwd = path.cwd, abs = abspath(path.module), root = abspath(path.root) } }
output "o" { value = abspath(path.module) }
`}
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			d := newDeployed(t, path, "", module, nil)
			d.deploy(t)
			if again, err := d.run(t, "plan", nil); err != nil || !again.Plan.NoOp {
				t.Errorf("a second deployment has changes: %+v, %v", again.Plan, err)
			}
		})
	}
}

// The data folder moves between plan and apply. Only a plan that contains its path is refused: the agents of a runner may
// have different data folders, and any of them may apply another one's plan.
func TestPlanWithAnotherPathIsNotApplied(t *testing.T) {
	tools := tofu.Tools(t)
	for value, placed := range map[string]bool{"path.cwd": true, "sha256(path.cwd)": true, "abspath(path.module)": true, `"${path.module}/x"`: false} {
		module := map[string]string{"main.tf": `resource "terraform_data" "a" { input = ` + value + ` }`}
		for name, path := range tools {
			t.Run(name+"/"+value, func(t *testing.T) { applyPlanAtAnotherPath(t, path, module, placed) })
		}
	}
}

func applyPlanAtAnotherPath(t *testing.T, path string, module map[string]string, placed bool) {
	t.Helper()
	d := newDeployed(t, path, "", module, nil)
	plan, err := d.run(t, "plan", nil)
	if err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(d.data, moved); err != nil {
		t.Fatal(err)
	}
	d.data = moved
	d.p = terraform.New(terraform.Config{Data: moved, Tool: path, Environ: []string{"PATH=" + os.Getenv("PATH")}})
	res, err := d.run(t, "apply", &plan)
	if refused := plugin.ReasonOf(err) == fairlead.ReasonPlanElsewhere; refused != placed || res.Mutated == placed || err != nil && !refused {
		t.Errorf("mutated %v, error %v", res.Mutated, err)
	}
	if placed {
		d.deploy(t)
	}
}

// A plan that writes too large files is refused at the plan, not at the apply.
func TestPlanWithTooLargeFilesIsRefused(t *testing.T) {
	config := archiveMirror(t)
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			large := filepath.Join(t.TempDir(), "large")
			f, err := os.Create(large)
			if err == nil {
				noise := bytes.NewReader(noise(70 << 20))
				_, err = noise.WriteTo(f)
			}
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			d := newDeployed(t, path, config, map[string]string{"main.tf": `
terraform {
  required_providers { archive = { source = "hashicorp/archive" } }
}
variable "x" {}
data "archive_file" "code" {
  source_file = var.x
  output_path = "code.zip"
}
resource "terraform_data" "a" { input = data.archive_file.code.output_sha256 }
`}, map[string]string{"x": `"` + large + `"`})
			_, err = d.run(t, "plan", nil)
			if plugin.ReasonOf(err) != fairlead.ReasonPlanTooLarge || !strings.Contains(err.Error(), "67108864") {
				t.Errorf("error %v, want plan-too-large with the limit", err)
			}
		})
	}
}

// noise returns n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// An output that does not fit into a float must not fail the plan.
func TestNumberBeyondAFloatKeepsItsDigits(t *testing.T) {
	want := "1" + strings.Repeat("0", 400)
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			d := newDeployed(t, path, "", map[string]string{"main.tf": "resource \"terraform_data\" \"a\" { input = 1e400 }\noutput \"o\" { value = 1e400 }\n"}, nil)
			applied := d.deploy(t)
			if got := string(applied.Outputs["o"].Value); got != want {
				t.Errorf("the output is %s", got)
			}
			if again, err := d.run(t, "plan", nil); err != nil || !again.Plan.NoOp || string(again.Outputs["o"].Value) != want {
				t.Errorf("a second plan: %+v, error %v", again, err)
			}
		})
	}
}

// The result of `init` that the plan saved is altered before the apply, so that the state would go to another place. The
// tool does not notice: it compares only a checksum. The plugin must notice.
func TestAlteredInitOfAPlanMovesNoState(t *testing.T) {
	module := map[string]string{"main.tf": `resource "terraform_data" "a" { input = 1 }`}
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			d := newDeployed(t, path, "", module, nil)
			plan, err := d.run(t, "plan", nil)
			if err != nil {
				t.Fatal(err)
			}
			noted := filepath.Join(d.data, "plans", string(d.spec.Job), "init", ".terraform", "terraform.tfstate")
			b, err := os.ReadFile(noted)
			if err != nil {
				t.Fatal(err)
			}
			elsewhere := filepath.Join(t.TempDir(), "elsewhere.tfstate")
			moved := bytes.ReplaceAll(b, []byte("../state/terraform.tfstate"), []byte(elsewhere))
			if err := os.WriteFile(noted, moved, 0o600); err != nil || bytes.Equal(b, moved) {
				t.Fatal(err)
			}
			res, err := d.run(t, "apply", &plan)
			if plugin.ReasonOf(err) != fairlead.ReasonBackendElsewhere || res.Mutated {
				t.Errorf("mutated %v, error %v", res.Mutated, err)
			}
			if _, err := os.Stat(elsewhere); err == nil {
				t.Error("the state was written to another place")
			}
		})
	}
}
