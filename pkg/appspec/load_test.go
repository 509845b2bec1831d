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

// write lays out files below dir; a name that ends in a slash is a folder.
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

// both are the ways in which a folder comes to Load; one refuses links that
// leave, the other follows them.
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

func TestAFolderIsLoaded(t *testing.T) {
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

func TestEverySourceThatIsNoModuleIsReported(t *testing.T) {
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
					t.Errorf("problem %d is %v, want %s", i, p, want[i])
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

func TestModulesThatCannotBeReadAreLeftToTheTool(t *testing.T) {
	for name, src := range map[string]string{
		"too large":       "# " + strings.Repeat("x", 3<<20),
		"deep":            "x = " + strings.Repeat("(", 1<<20),
		"not terraform":   strings.Repeat("}", 1000) + "\x00\xff",
		"an unclosed one": "variable \"",
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

func TestAMissingSourceIsReportedTogetherWithTheRest(t *testing.T) {
	_, problems := appspec.Load(fstest.MapFS{
		"app.yaml":            {Data: []byte("fairlead: v1\nname: A\ncomponents:\n  web: {type: terraform, source: ./modules/wbe}\n")},
		"modules/web/main.tf": {Data: nil},
	})
	if got := codes(problems); got != "2:7 invalid-name, 4:34 missing-source" {
		t.Errorf("got %s", got)
	}
	if hint := problems[1].Hint; hint != `Did you mean "./modules/web"?` {
		t.Errorf("hint is %s", hint)
	}
}

func TestAFileThatCannotBeReadIsOneProblem(t *testing.T) {
	for name, c := range map[string]struct {
		lay           func(t *testing.T, dir string)
		code, message string
	}{
		"nothing there": {func(*testing.T, string) {}, "missing-file", "there is no app.yaml"},
		"the other ending": {
			func(t *testing.T, dir string) { write(t, dir, map[string]string{"app.yml": ""}) }, "missing-file", "Rename app.yml",
		},
		"a folder": {
			func(t *testing.T, dir string) { write(t, dir, map[string]string{"app.yaml/": ""}) }, "unreadable-file", "not a regular file",
		},
		"a pipe, for which one could wait for ever": {
			func(t *testing.T, dir string) {
				if err := syscall.Mkfifo(filepath.Join(dir, "app.yaml"), 0o600); err != nil {
					t.Skipf("this system makes no pipes: %v", err)
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
