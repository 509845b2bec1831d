package appspec_test

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
)

const oneComponent = "fairlead: v1\nname: a\ncomponents:\n  m:\n    type: terraform\n    source: ./m\n    vars: {x: 1}\n"

// Formerly `app validate` refused modules that a tool accepts, and accepted modules
// that a runner refuses.
func TestModuleIsCheckedAsTheToolsReadIt(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"main.tofu replaces main.tf": {map[string]string{
			"m/main.tf":   "variable \"y\" {}\noutput \"o\" { value = var.nowhere }\n",
			"m/main.tofu": "variable \"x\" {}\n"}, ""},
		"main.tofu.json replaces main.tf.json": {map[string]string{
			"m/main.tf.json": `{"variable": {"y": {}}}`, "m/main.tofu.json": `{"variable": {"x": {}}}`}, ""},
		"main.tofu does not replace main.tf.json": {map[string]string{
			"m/main.tf.json": `{"variable": {"y": {}}}`, "m/main.tofu": "variable \"x\" {}\n"}, "4:3 missing-variable"},
		"an override that sets a backend": {map[string]string{"m/main.tf": "variable \"x\" {}\n",
			"m/backend_override.tf": "\nterraform {\n  backend \"local\" {}\n}\n"}, "3:3 backend-override"},
		"an override in JSON": {map[string]string{"m/main.tf": "variable \"x\" {}\n",
			"m/override.tf.json": `{"terraform": {"back\u0065nd": {"local": {}}}}`}, "1:42 backend-override"},
		"an override with several dots": {map[string]string{"m/main.tf": "variable \"x\" {}\n",
			"m/z.z_override.tofu": "terraform {\n  cloud {}\n}\n"}, "2:3 backend-override"},
		"a backend outside of overrides": {map[string]string{"m/main.tf": "variable \"x\" {}\nterraform {\n  backend \"s3\" {}\n}\n"}, ""},
		"an override in a called module": {map[string]string{"m/main.tf": "variable \"x\" {}\nmodule \"n\" { source = \"./n\" }\n",
			"m/n/x_override.tf": "terraform {\n  backend \"local\" {}\n}\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tc.files["app.yaml"] = oneComponent
			write(t, dir, tc.files)
			if _, problems := appspec.Load(os.DirFS(dir)); codes(problems) != tc.want {
				t.Errorf("got %q, want %q: %v", codes(problems), tc.want, problems)
			}
		})
	}
}
