package appspec_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/pkg/appspec"
)

// write creates files below dir. A name that ends in a slash is a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// both returns dir as the two kinds of file systems that Load gets. os.Root refuses
// links that leave the folder; os.DirFS follows them.
func both(t *testing.T, dir string) map[string]fs.FS {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return map[string]fs.FS{"os.Root": root.FS(), "os.DirFS": os.DirFS(dir)}
}

func codes(ps appspec.Problems) string {
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Code))
	}
	return strings.Join(out, ", ")
}

func TestFolderIsLoaded(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"app.yaml": shop, "modules/real/main.tf.json": "{}",
		"modules/web/main.tf":        "variable \"name\" {}\nvariable replicas {}\nvariable \"database_url\" {}\nvariable \"settings\" {}\n",
		"modules/database/main.tofu": "variable \"password\" {\n  sensitive = true\n}\noutput \"url\" {\n  value = \"x ${var.password} }\"\n}\n",
	})
	if err := os.Symlink("real", filepath.Join(dir, "modules/cache")); err != nil {
		t.Fatal(err)
	}
	for name, fsys := range both(t, dir) {
		app, problems := appspec.Load(fsys)
		if problems != nil {
			t.Fatalf("%s: %v", name, problems)
		}
		if len(app.Components) != 3 {
			t.Errorf("%s: %v", name, app)
		}
	}
}

// Without the file, each plan of the component would fail at the customer.
func TestChartNeedsItsFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"app.yaml": "fairlead: v1\nname: a\ncomponents:\n  bad: {type: helm, source: ./bad}\n  good: {type: helm, source: ./good}\n  folder: {type: helm, source: ./folder}\n",
		"bad/values.yaml": "", "good/Chart.yaml": "name: good\n", "folder/Chart.yaml/x": ""})
	for name, fsys := range both(t, dir) {
		_, problems := appspec.Load(fsys)
		if len(problems) != 2 || problems[0].Code != "missing-source" || problems[0].Line != 4 || !strings.Contains(problems[0].Message, `holds no file "Chart.yaml"`) || problems[1].Line != 6 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestInvalidSourcesAreReported(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, map[string]string{"main.tf": ""})
	dir := t.TempDir()
	var yaml strings.Builder
	yaml.WriteString("fairlead: v1\nname: a\ncomponents:\n")
	for i, source := range []string{"gone", "modles/web", "file.tf", "empty", "out", "loop", "absolute", "out-inside/deep", "pipe-only", "ok"} {
		fmt.Fprintf(&yaml, "  c%d: {type: terraform, source: ./%s}\n", i, source)
	}
	write(t, dir, map[string]string{
		"app.yaml": yaml.String(), "modules/web/main.tf": "", "file.tf": "", "empty/README.md": "", "empty/.hidden.tf": "", "empty/sub/main.tf": "",
		"out-inside/": "", "pipe-only/x.txt": "", "ok/main.tf": "",
	})
	outsideRel, err := filepath.Rel(dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"out": outsideRel, "absolute": outside, "loop": "loop", "out-inside/deep": "../../" + filepath.Base(outside),
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, fsys := range both(t, dir) {
		t.Run(name, func(t *testing.T) {
			app, problems := appspec.Load(fsys)
			want := []string{
				"does not exist", "does not exist", "is not a folder", "holds no .tf or .tofu file", "leaves", "too many symbolic links",
				"leaves", "leaves", "holds no .tf",
			}
			if app != nil || len(problems) != len(want) {
				t.Fatalf("got %v", problems)
			}
			for i, p := range problems {
				if p.Line != 4+i || p.Column != 33 || p.Code != "missing-source" || !strings.Contains(p.Message, want[i]) || strings.Contains(p.String(), dir) {
					t.Errorf("problem %d: %v, want %s", i, p, want[i])
				}
			}
		})
	}
}

func TestAppAndModulesMustAgree(t *testing.T) {
	const yaml = `fairlead: v1
name: a
components:
  db:
    type: terraform
    source: ./db
    vars:
      sise: 1
  web:
    type: terraform
    source: ./web
    vars:
      a: ${components.db.outputs.url}
      b: x ${components.db.outputs.uri} ${components.gen.outputs.host}
  gen:
    type: terraform
    source: ./gen
  preset:
    type: terraform
    source: ./preset
`
	_, problems := appspec.Load(fstest.MapFS{
		"app.yaml": {Data: []byte(yaml)},
		"db/variables.tf": {Data: []byte(`
variable "size" {
  type    = number
  default = 1
}
variable "zone" {
  type = object({ default = string })
  description = <<-EOT
    default = { "${upper("x")}"
  EOT
  validation {
    condition = var.zone != { default = 1 }
  }
}
# variable "comment" {}
locals { variable = { "no" = {} } }
`)},
		"db/outputs.tf":        {Data: []byte(`output "uri" { value = { output = "url" } }`)},
		"web/main.tf":          {Data: []byte("variable \"a\" {}\nvariable \"b\" {\n  default = null\n}\n")},
		"gen/main.tf.json":     {Data: []byte(`{"variable":{"x":{"default":1},"y":{}},"output":[{"addr":{"value":1}}]}`)},
		"preset/main.tf":       {Data: []byte(`variable "v" {}`)},
		"preset/x.auto.tfvars": {Data: []byte(`v = 1`)},
	})
	want := []string{
		`4:3 missing-variable the module of component "db" needs the variable "zone"`,
		`8:7 unknown-variable the module of component "db" has no variable "sise"`,
		`13:10 unknown-output the module of component "db" has no output "url"`,
		`14:41 unknown-output the module of component "gen" has no output "host"`,
		`15:3 missing-variable the module of component "gen" needs the variable "y"`,
	}
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%d:%d %s %s", p.Line, p.Column, p.Code, p.Message))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A secret of the customer that no variable of the module takes would reach no tool.
func TestMisspeltSecretIsReportedAtItsPlace(t *testing.T) {
	_, problems := appspec.Load(fstest.MapFS{
		"app.yaml":   {Data: []byte("fairlead: v1\nname: a\ncomponents:\n  db:\n    type: terraform\n    source: db\n    secrets:\n      - TOKEN\n      - var.pasword\n")},
		"db/main.tf": {Data: []byte("variable \"password\" { default = \"\" }\n")},
	})
	const want = `app.yaml:9:9: the module of component "db" has no variable "pasword" [unknown-variable]. Did you mean "password"?`
	if got := problems.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A module beyond the parser's limits is not checked: the tool reads it.
func TestModuleBeyondLimitsIsAccepted(t *testing.T) {
	for name, src := range map[string]string{
		"too large":             "# " + strings.Repeat("x", 3<<20),
		"deep":                  "x = " + strings.Repeat("(", 1<<20),
		"deep in texts":         "x = " + strings.Repeat(`"${`, 1<<14),
		"deep without brackets": "x = " + strings.Repeat("!", 1<<16),
		"a long chain":          "x = " + strings.Repeat("a ? b : ", 1<<14),
		"a long sum":            "x = a" + strings.Repeat("+a", 1<<15),
		"deep in directives":    "x = \"" + strings.Repeat("%{if a}", 1<<14),
	} {
		app, problems := appspec.Load(fstest.MapFS{
			"app.yaml":  {Data: []byte("fairlead: v1\nname: a\ncomponents:\n  a: {type: terraform, source: a}\n")},
			"a/main.tf": {Data: []byte(src)},
		})
		if app == nil {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// loadModules loads an app of one component with the files. It returns the problems,
// one on each line.
func loadModules(files map[string]string) string {
	fsys := fstest.MapFS{"app.yaml": {Data: []byte("fairlead: v1\nname: a\ncomponents:\n  a: {type: terraform, source: ./a}\n")}}
	for name, src := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(src)}
	}
	_, problems := appspec.Load(fsys)
	return problems.Error()
}

func TestSyntaxErrorsOfModulesHaveFileAndLine(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no label":     {map[string]string{"a/main.tf": "\nresource {\n}\n"}, `a/main.tf:2:1: the block resource has no label, and needs 2 labels [malformed-module]. Write: resource "TYPE" "NAME" { … }`},
		"never closed": {map[string]string{"a/main.tf": "locals {}\nresource {\n"}, "a/main.tf:2:10: unclosed configuration block [malformed-module]"},
		"an argument outside of blocks": {
			map[string]string{"a/main.tf": "x = 1\n"}, `a/main.tf:1:1: the argument "x" is outside of any block [malformed-module]`,
		},
		"garbage":     {map[string]string{"a/main.tf": strings.Repeat("}", 1000) + "\x00\xff"}, "a/main.tf:1:1: "},
		"half a text": {map[string]string{"a/main.tf": "variable \""}, "a/main.tf:1:"},
		"JSON":        {map[string]string{"a/main.tf.json": "{\n  \"variable\": {,}\n}"}, "a/main.tf.json:2:16: the file is not JSON here"},
		"a module that the module calls": {
			map[string]string{"a/main.tf": "module \"m\" {\n  source = \"./m\"\n}\n", "a/m/main.tf": "output {}\n"}, "a/m/main.tf:1:1: the block output has no label, and needs 1 label",
		},
		"a cycle of calls":                 {map[string]string{"a/main.tf": "module \"m\" {\n  source = \"./m\"\n}\n", "a/m/main.tf": "module \"m\" {\n  source = \"../m\"\n}\n"}, ""},
		"a folder that no module calls":    {map[string]string{"a/main.tf": "", "a/templates/main.tf": "resource {"}, ""},
		"a call that leaves the component": {map[string]string{"a/main.tf": "module \"m\" {\n  source = \"../b\"\n}\n", "b/main.tf": "resource {"}, "b/main.tf:1:10: "},
		"a block type of a later version":  {map[string]string{"a/main.tf": "novelty \"a\" \"b\" \"c\" {}\n"}, ""},
	} {
		if got := loadModules(c.files); !strings.HasPrefix(got, c.want) || (c.want == "" && got != "") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestUndeclaredVariablesOfModulesAreReported(t *testing.T) {
	for name, c := range map[string]struct{ src, want string }{
		"a typing error": {
			"variable \"size\" {\n  default = 1\n}\nresource \"terraform_data\" \"x\" {\n  input = [\"${var.sise}\"]\n}\n",
			`a/main.tf:5:15: the module declares no variable "sise" [undeclared-variable]. Did you mean "size"?`,
		},
		"an undeclared variable":  {"output \"x\" {\n  value = var.nope\n}\n", `a/main.tf:2:11: the module declares no variable "nope" [undeclared-variable]. Declare it: variable "nope" {}`},
		"a variable of a loop":    {"output \"x\" {\n  value = [for var in [] : var.nope]\n}\n", ""},
		"a dynamic block":         {"resource \"a\" \"b\" {\n  dynamic \"var\" {\n    for_each = []\n    content {\n      a = var.value\n    }\n  }\n}\n", ""},
		"an attribute":            {"resource \"a\" \"b\" {\n  lifecycle {\n    ignore_changes = [var.nope]\n  }\n}\n", ""},
		"an attribute of a local": {"output \"x\" {\n  value = local.var.nope\n}\n", ""},
	} {
		if got := loadModules(map[string]string{"a/main.tf": c.src}); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestRegistrySourceGetsAHint(t *testing.T) {
	load := func(source string, more fstest.MapFS) appspec.Problems {
		fsys := fstest.MapFS{"app.yaml": {Data: []byte("fairlead: v1\nname: a\ncomponents:\n  a: {type: terraform, source: " + source + "}\n")}}
		for name, f := range more {
			fsys[name] = f
		}
		_, problems := appspec.Load(fsys)
		return problems
	}
	for source, more := range map[string]string{"terraform-aws-modules/vpc/aws": "", "registry.opentofu.org/terraform-aws-modules/vpc/aws": "", "terraform-aws-modules/vpc/aws//modules/x": `"source: ./modules/x"`} {
		problems := load(source, nil)
		address, _, _ := strings.Cut(source, "//")
		if len(problems) != 1 || problems[0].Code != "registry-source" || problems[0].Line != 4 || !strings.Contains(problems[0].Hint, "\"module: {source: "+address+", version: 1.2.3}\"") ||
			!strings.Contains(problems[0].Hint, more) {
			t.Errorf("%s: got %v", source, problems)
		}
	}
	for name, c := range map[string]struct {
		source string
		more   fstest.MapFS
	}{
		"a path":                  {"./terraform-aws-modules/vpc/aws", nil},
		"a similar folder exists": {"modules/vpc/aws", fstest.MapFS{"modules/vpc/aw/main.tf": {}}},
		"the folder exists":       {"modules/vpc/aws", fstest.MapFS{"modules/vpc/aws/README.md": {}}},
		"two parts":               {"modules/vpc", nil},
	} {
		if problems := load(c.source, c.more); codes(problems) != "4:32 missing-source" {
			t.Errorf("%s: got %v", name, problems)
		}
	}
}

func TestWrongIndentationIsReported(t *testing.T) {
	const head = "fairlead: v1\nname: a\ncomponents:\n  web:\n"
	for name, c := range map[string]struct {
		src  string
		want string
	}{
		"one space too few": {
			head + "    type: terraform\n   source: ./web\n", "6:4: value is not allowed in this context [malformed-yaml]. " +
				"Line 6 begins with 3 spaces, which matches no level above it. Is it indented too little?",
		},
		"one space too many": {
			head + "    type: terraform\n     source: ./web\n", "5:11: mapping value is not allowed in this context [malformed-yaml]. " +
				"Line 6 begins with 5 spaces. Line 5 begins with 4 and already has a value. Is line 6 indented too much?",
		},
		"vars next to the component": {
			head + "    type: terraform\n    source: ./web\n  vars:\n    a: 1\n    b: 2\n", `7:3: "vars" is next to the component "web", not in it [wrong-indentation]. ` +
				"Is it indented too little? Indent line 7 and its content further.",
		},
		"all fields next to the component": {
			head + "  type: terraform\n  source: ./web\n", `5:3: "type" is next to the component "web", not in it [wrong-indentation]. Is it indented too little? Indent line 5 and its content further.`,
		},
		"vars next to the components": {
			head + "    type: terraform\n    source: ./web\nvars:\n  a: 1\n", `7:1: the file has no field "vars" [unknown-field]. "vars" is a field of a component. Is line 7 indented too little?`,
		},
		"a variable next to vars": {
			head + "    type: terraform\n    source: ./web\n    vars:\n    a: 1\n", `8:5: components.web has no field "a" [unknown-field]. vars, in line 7, is empty. Is line 8 indented too little?`,
		},
		"a field next to the input": {
			"fairlead: v1\nname: a\ninputs:\n  size:\n    type: number\n  default: 2\ncomponents:\n  web: {type: terraform, source: ./web}\n",
			`6:3: "default" is next to the input "size", not in it [wrong-indentation]. Is it indented too little? Indent line 6 and its content further.`,
		},
		"names that are fields elsewhere": {
			"fairlead: v1\nname: a\ninputs:\n  size:\n  default:\n  type: {type: number}\ncomponents:\n  web: {type: terraform, source: ./web}\n  vars: {type: terraform, source: ./web}\n", "",
		},
	} {
		_, problems := appspec.Parse("app.yaml", []byte(c.src))
		if got := strings.ReplaceAll(problems.Error(), "app.yaml:", ""); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestMissingSourceIsReportedWithOtherErrors(t *testing.T) {
	_, problems := appspec.Load(fstest.MapFS{
		"app.yaml":            {Data: []byte("fairlead: v1\nname: A\ncomponents:\n  web: {type: terraform, source: ./modules/wbe}\n")},
		"modules/web/main.tf": {Data: nil},
	})
	if got := codes(problems); got != "2:7 invalid-name, 4:34 missing-source" {
		t.Errorf("got %s", got)
	}
	if hint := problems[1].Hint; hint != `Did you mean "./modules/web"?` {
		t.Errorf("hint %s", hint)
	}
}

func TestUnreadableFileIsOneProblem(t *testing.T) {
	for name, c := range map[string]struct {
		lay           func(t *testing.T, dir string)
		code, message string
	}{
		"no file": {func(*testing.T, string) {}, "missing-file", "there is no app.yaml"},
		"the extension .yml": {
			func(t *testing.T, dir string) { write(t, dir, map[string]string{"app.yml": ""}) }, "missing-file", "Rename app.yml",
		},
		"a folder": {
			func(t *testing.T, dir string) { write(t, dir, map[string]string{"app.yaml/": ""}) }, "unreadable-file", "not a regular file",
		},
		"a pipe, whose read would block": {
			func(t *testing.T, dir string) {
				if err := syscall.Mkfifo(filepath.Join(dir, "app.yaml"), 0o600); err != nil {
					t.Skipf("this system cannot create named pipes: %v", err)
				}
			}, "unreadable-file", "not a regular file",
		},
		"a link to a device": {
			func(t *testing.T, dir string) {
				if err := os.Symlink("/dev/zero", filepath.Join(dir, "app.yaml")); err != nil {
					t.Fatal(err)
				}
			}, "unreadable-file", "leaves",
		},
		"a file of more than 1 MiB": {
			func(t *testing.T, dir string) {
				write(t, dir, map[string]string{"app.yaml": strings.Repeat("#", appspec.MaxFileSize+1)})
			}, "file-too-large", "1048576",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.lay(t, dir)
			for kind, fsys := range both(t, dir) {
				app, problems := appspec.Load(fsys)
				if app != nil || len(problems) != 1 || problems[0].Code != c.code || problems[0].Line != 1 || problems[0].File != "app.yaml" ||
					!strings.Contains(problems[0].String(), c.message) {
					t.Errorf("%s: got %v, %v", kind, app, problems)
				}
			}
		})
	}
}
