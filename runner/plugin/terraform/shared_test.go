package terraform_test

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/test/tofu"
)

// A component may call a module beside its folder. The tool runs in the component's folder of the artifact.
func TestModuleBesideTheComponentsFolder(t *testing.T) {
	module := map[string]string{
		"main.tf":            "this is not the component's",
		"live/web/main.tf":   "module \"m\" { source = \"../../shared\" }\noutput \"o\" { value = \"${module.m.text} ${path.cwd}\" }\n",
		"shared/main.tf":     "resource \"terraform_data\" \"a\" { input = file(\"${path.module}/text\") }\nmodule \"n\" { source = \"../other\" }\noutput \"text\" { value = \"${terraform_data.a.output} ${module.n.o}\" }\n",
		"shared/text":        "of the shared module",
		"other/main.tf.json": `{"output": {"o": {"value": "of another"}}}`,
	}
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			d := newDeployed(t, path, "", module, nil)
			d.sources = map[string]map[string]string{"shared#live/web": module}
			d.spec.Artifact = &events.ArtifactRef{Digest: "shared#live/web"}
			applied := d.deploy(t)
			if got := string(applied.Outputs["o"].Value); !strings.Contains(got, "of the shared module of another ") || !strings.HasSuffix(got, `/live/web"`) {
				t.Errorf("the output is %s", got)
			}
			if _, err := os.Stat(d.data + "/state/ins_1/web/terraform.tfstate"); err != nil {
				t.Errorf("the state's file is missing: %v", err)
			}
			d.expectNoChanges(t)
			d.tearDown(t)
		})
	}
}

// An artifact names a component's folder that is missing or that has a reserved file.
func TestArtifactWithoutItsComponentIsRefused(t *testing.T) {
	for name, path := range tofu.Tools(t) {
		for what, files := range map[string]map[string]string{
			"no such folder":       {"main.tf": ""},
			"a file in its place":  {"live": "x"},
			"a file of the runner": {"live/x.tf": "", "live/fairlead_backend_override.tf.json": "{}"},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				d := newDeployed(t, path, "", nil, nil)
				d.sources = map[string]map[string]string{"x#live": files}
				d.spec.Artifact = &events.ArtifactRef{Digest: "x#live"}
				if _, err := d.run(t, "plan", nil); plugin.ReasonOf(err) != fairlead.ReasonArtifactInvalid {
					t.Errorf("error %v, want artifact-invalid", err)
				}
			})
		}
	}
}
