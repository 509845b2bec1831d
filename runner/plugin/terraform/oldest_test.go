package terraform_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/tools/oldtools/oldtool"
)

// The oldest supported tools deploy what the docs promise: inputs, an input that a file of the module also sets, an
// archive that the plan wrote, and a module beside the component's folder.
func TestTheOldestSupportedTools(t *testing.T) {
	tools := oldtool.Find(t)
	config := archiveMirror(t)
	module := map[string]string{
		"web/index.js": "exports.handler = 1", "web/x.auto.tfvars": `x = "of the file"`,
		"web/main.tf": `
terraform {
  required_providers { archive = { source = "hashicorp/archive" } }
}
variable "x" {}
variable "settings" { type = map(list(number)) }
variable "secret" {
  type      = string
  sensitive = true
}
data "archive_file" "code" {
  source_file = "${path.module}/index.js"
  output_path = "${path.module}/code.zip"
}
module "shared" {
  source = "../shared"
  sum    = data.archive_file.code.output_sha256
}
resource "terraform_data" "function" {
  input = [module.shared.sum, var.x, var.settings, sha256(var.secret)]
  provisioner "local-exec" { command = "cp '${data.archive_file.code.output_path}' deployed.zip" }
}
output "x" { value = terraform_data.function.output[1] }
output "settings" { value = terraform_data.function.output[2] }
output "at" { value = path.cwd }
`,
		"shared/main.tf": "variable \"sum\" {}\nresource \"terraform_data\" \"a\" { input = var.sum }\noutput \"sum\" { value = terraform_data.a.output }\n",
	}
	for name, path := range tools {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(path, "version", "-json").Output()
			var is struct {
				Version string `json:"terraform_version"`
			}
			if err := json.Unmarshal(out, &is); err != nil || !strings.HasSuffix(name, "-"+is.Version) {
				t.Errorf("the tool reports version %q: %v", is.Version, err)
			}
			if err != nil {
				t.Fatal(err)
			}
			d := newDeployed(t, path, config, nil, map[string]string{"x": `"given"`, "settings": `{"a": [1, 2.5]}`, "secret": `"hush, this is secret"`})
			d.sources = map[string]map[string]string{"m#web": module}
			d.spec.Artifact = &events.ArtifactRef{Digest: "m#web"}
			d.spec.Vars["secret"] = events.SpecVar{Value: d.spec.Vars["secret"].Value, Sensitive: true}
			applied := d.deploy(t)
			for output, want := range map[string]string{"x": `"given"`, "settings": `{"a":[1,2.5]}`} {
				var got, meant any
				if json.Unmarshal(applied.Outputs[output].Value, &got) != nil || json.Unmarshal([]byte(want), &meant) != nil || !equalJSON(got, meant) {
					t.Errorf("output %s is %s, want %s", output, applied.Outputs[output].Value, want)
				}
			}
			if at := string(applied.Outputs["at"].Value); !strings.HasSuffix(at, filepath.Join("src", "web")+`"`) {
				t.Errorf("the module's path is %s", at)
			}
			d.expectNoChanges(t)
			d.spec.Vars["x"] = events.SpecVar{Value: json.RawMessage(`"changed"`)}
			if applied := d.deploy(t); string(applied.Outputs["x"].Value) != `"changed"` {
				t.Errorf("after a change the output is %s", applied.Outputs["x"].Value)
			}
			d.tearDown(t)
		})
	}
}

func equalJSON(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}

// An old tool refuses what it cannot do at the plan, before any change. The docs have the same table.
func TestOldestToolsRefuseUnsupportedPlans(t *testing.T) {
	unsupported := map[string]map[string]string{ // and a part of the error message
		"terraform-1.5.7": {
			"an ephemeral variable":       `An argument named "ephemeral" is not expected here`,
			"a module's source":           "Variables not allowed",
			"the passphrase of the state": `Blocks of type "encryption" are not expected here`,
		},
		"tofu-1.8.0": {"an ephemeral variable": `An argument named "ephemeral" is not expected here`},
	}
	for name, path := range oldtool.Find(t) {
		for what, tc := range variableCases() {
			t.Run(name+"/"+what, func(t *testing.T) {
				message, refused := unsupported[name][what]
				if !refused {
					tc.deployTwice(t, path)
					return
				}
				_, err := newDeployed(t, path, "", tc.module, tc.vars).run(t, "plan", nil)
				if e, ok := errors.AsType[*plugin.Error](err); !ok || !strings.Contains(e.Message, message) {
					t.Errorf("error %v, want %s", err, message)
				}
			})
		}
	}
}
