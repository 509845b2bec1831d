package appspec_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
)

// call returns a file with one module call for each source.
func call(sources ...string) string {
	var b strings.Builder
	for i, s := range sources {
		fmt.Fprintf(&b, "module \"m%d\" {\n  source = %q\n}\n", i, s)
	}
	return b.String()
}

// Formerly `app validate` accepted an app with a call of a module outside of the
// component's folder, and every deployment failed: "Unreadable module directory".
func TestSharedModulesAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		files  map[string]string
		links  map[string]string
		source string // "": m
		shared string // the shared folders, as fmt prints them
		want   string // "FILE:LINE:COLUMN code message"; "": no problem
		hint   string
	}{
		"none, only its own modules": {files: map[string]string{"m/main.tf": call("./n"), "m/n/main.tf": ""}, shared: "[]"},
		"one next to the component":  {files: map[string]string{"m/main.tf": call("../shared"), "shared/main.tf": ""}, shared: "[shared]"},
		"one that calls another": {files: map[string]string{"m/main.tf": call("../shared"), "shared/main.tf": call("../deeper/one"), "deeper/one/main.tf": ""},
			shared: "[deeper/one shared]"},
		"called by a module below the component": {files: map[string]string{"m/main.tf": call("./n"), "m/n/main.tf": call("../../shared"), "shared/main.tf": ""}, shared: "[shared]"},
		"in a cycle": {files: map[string]string{"m/main.tf": call("../a"), "a/main.tf": call("../b"), "b/main.tf": call("../a", "../m")},
			shared: "[a b]"},
		"a component deeper in the app": {source: "live/eu/m", files: map[string]string{"live/eu/m/main.tf": call("../../../modules/x"), "modules/x/main.tf": ""}, shared: "[modules/x]"},
		"the app's folder itself":       {files: map[string]string{"m/main.tf": call("../"), "main.tf": ""}, shared: "[.]"},
		"in JSON": {files: map[string]string{"m/main.tf.json": `{"module": {"x": {"source": "../shared"}}}`, "shared/main.tf": ""},
			shared: "[shared]"},
		"in JSON, as a list": {files: map[string]string{"m/main.tf.json": `{"module": [{"x": [{"source": "../shar\u0065d"}]}]}`, "shared/main.tf": ""},
			shared: "[shared]"},
		"with an escape, next to a comment": {files: map[string]string{"m/main.tf": "module \"x\" {\n  source = \"../shar\\u0065d\" # ours\n}\n", "shared/main.tf": ""}, shared: "[shared]"},
		"in a file beyond the limits of the parser": {files: map[string]string{"m/main.tf": "locals { x = " + strings.Repeat("[", 500) + strings.Repeat("]", 500) + " }\n" + call("../shared"), "shared/main.tf": ""},
			shared: "[shared]"},
		"in a file that only Terraform reads": {files: map[string]string{"m/main.tf": call("../shared", "../gone"), "m/main.tofu": "", "shared/main.tf": ""}, shared: "[shared]"},
		"replaced by an override": {files: map[string]string{"m/main.tf": call("../../elsewhere"), "m/main_override.tf": call("../shared"), "shared/main.tf": ""},
			shared: "[shared]"},
		"the component's source is a link": {source: "linked", links: map[string]string{"linked": "m"}, files: map[string]string{"m/main.tf": call("../shared"), "shared/main.tf": ""},
			shared: "[shared]"},
		"sources that are no paths, or not constant": {files: map[string]string{
			"m/main.tf": "variable \"v\" {\n  default = 1\n}\n" + call("acme/x/aws", "git::https://example.com/x.git", "/opt/modules/x") + "module \"v\" {\n  source = \"../${var.v}\"\n}\n",
			"m/x.tf":    "# module \"c\" { source = \"../../x\" }\nlocals { module = { source = \"../../x\" } }\n"}, shared: "[]"},

		"outside of the app": {files: map[string]string{"m/main.tf": "\n" + call("../../shared")},
			want: `m/main.tf:3:3 module-source the source "../../shared" of module "m0" points outside the app's folder`, hint: "copy the module into it"},
		"outside of the app, by a shared module": {files: map[string]string{"m/main.tf": call("../shared"), "shared/x.tf": call("../../other")},
			want: `shared/x.tf:2:3 module-source the source "../../other" of module "m0" points outside the app's folder`, hint: "copy the module into it"},
		"outside of the app, in JSON": {files: map[string]string{"m/main.tf.json": "{\"module\":\n {\"x\": {\"source\": \"../../x\"}}}"},
			want: `m/main.tf.json:2:9 module-source the source "../../x" of module "x" points outside the app's folder`, hint: "copy the module into it"},
		"a missing folder": {files: map[string]string{"m/main.tf": call("../sharde"), "shared/main.tf": ""},
			want: `m/main.tf:2:3 module-source the source "../sharde" of module "m0" points to "sharde", which does not exist`, hint: `Did you mean "./shared"?`},
		"a missing folder below the component's": {files: map[string]string{"m/main.tf": call("./n")},
			want: `m/main.tf:2:3 module-source the source "./n" of module "m0" points to "m/n", which does not exist`, hint: "relative to the module's own folder"},
		"a file": {files: map[string]string{"m/main.tf": call("../shared/main.tf"), "shared/main.tf": ""},
			want: `m/main.tf:2:3 module-source the source "../shared/main.tf" of module "m0" is not a folder`, hint: "Name the folder"},
		"a link to a folder of the app": {files: map[string]string{"m/main.tf": call("../linked"), "shared/main.tf": ""}, links: map[string]string{"linked": "shared"},
			want: `m/main.tf:2:3 module-source the source "../linked" of module "m0" passes through a symbolic link`, hint: `"shared"`},
		"a link that leaves": {files: map[string]string{"m/main.tf": call("../linked")}, links: map[string]string{"linked": "../.."},
			want: `m/main.tf:2:3 module-source the source "../linked" of module "m0" leaves the app's folder through a symbolic link`, hint: "copy the module into it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "app")
			source := "m"
			if tc.source != "" {
				source = tc.source
			}
			tc.files["app.yaml"] = "fairlead: v1\nname: a\ncomponents:\n  m: {type: terraform, source: ./" + source + "}\n"
			write(t, dir, tc.files)
			for link, to := range tc.links {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			for kind, fsys := range both(t, dir) {
				app, problems := appspec.Load(fsys)
				checkShared(t, kind, fsys, app, problems, tc.shared, tc.want, tc.hint)
			}
		})
	}
}

func checkShared(t *testing.T, kind string, fsys fs.FS, app *appspec.App, problems appspec.Problems, shared, want, hint string) {
	t.Helper()
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%s:%d:%d %s %s", p.File, p.Line, p.Column, p.Code, p.Message))
		if hint == "" || !strings.Contains(p.Hint, hint) {
			t.Errorf("%s: hint %q", kind, p.Hint)
		}
	}
	if strings.Join(got, "\n") != want {
		t.Errorf("%s: got %q, want %q", kind, got, want)
	}
	if app == nil {
		return
	}
	s, err := appspec.SourceOf(fsys, app.Components[0])
	if err != nil || fmt.Sprint(s.Shared) != shared {
		t.Errorf("%s: shared folders %v, want %s; %v", kind, s.Shared, shared, err)
	}
}
