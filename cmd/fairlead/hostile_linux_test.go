package main_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/test/e2e"
)

// TestHostileApp publishes folders that are not valid apps, or that harm a program that
// unpacks them. `app apply` refuses each folder, names the problem and its place, and
// sends nothing to the control plane.
func TestHostileApp(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	w := e2e.New(t, programs, e2e.Options{})
	const good = "fairlead: v1\nname: bad\ncomponents:\n  web: {type: terraform, source: ./web}\n"
	for _, tc := range []struct {
		name string
		app  string                         // app.yaml
		make func(t *testing.T, dir string) // creates more files in the component's folder
		want []string
	}{
		{"an unknown field", good + "colour: red\n", nil, []string{"app.yaml:5", "colour"}},
		{"not YAML", "fairlead: v1\nname: [\n", nil, []string{"app.yaml"}},
		{"bytes that are not text", "fairlead: v1\nname: \x00\xff\n", nil, []string{"app.yaml"}},
		{"aliases that expand to 10^9 elements", bomb(), nil, []string{"app.yaml"}},
		{"nested too deep", "fairlead: v1\nname: bad\ninputs: " + strings.Repeat("[", 20000) + "\n", nil, []string{"app.yaml"}},
		{"an app.yaml of 40 MB", good + strings.Repeat("# padding without an end\n", 40<<20/26), nil, []string{"app.yaml"}},
		{"a source outside the folder", strings.Replace(good, "./web", "../web", 1), nil, []string{"app.yaml:4", "../web"}},
		{"a source that does not exist", strings.Replace(good, "./web", "./none", 1), nil, []string{"app.yaml:4", "none"}},
		{"a link out of the folder", good, func(t *testing.T, dir string) {
			must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "passwd.tf")))
		}, []string{"passwd.tf"}},
		{"a link to the folder above", good, func(t *testing.T, dir string) {
			must(t, os.Symlink("..", filepath.Join(dir, "up")))
		}, []string{"up"}},
		{"a FIFO without a writer", good, func(t *testing.T, dir string) {
			must(t, syscall.Mkfifo(filepath.Join(dir, "pipe.tf"), 0o600))
		}, []string{"pipe.tf"}},
		{"a device file", good, func(t *testing.T, dir string) {
			if err := syscall.Mknod(filepath.Join(dir, "zero.tf"), syscall.S_IFCHR|0o600, 1<<8|5); err != nil {
				t.Skipf("DEVICE FILES NOT TESTED: this user may not create one: %v", err)
			}
		}, []string{"zero.tf"}},
		{"a sparse file of 8 TB", good, func(t *testing.T, dir string) {
			f, err := os.Create(filepath.Join(dir, "sparse"))
			must(t, err)
			defer f.Close()
			if err := f.Truncate(8 << 40); err != nil {
				must(t, f.Truncate(8<<30))
			}
		}, []string{"the limit for one file"}},
		{"11000 files", good, func(t *testing.T, dir string) {
			for d := range 11 {
				sub := filepath.Join(dir, fmt.Sprint(d))
				must(t, os.Mkdir(sub, 0o755))
				must(t, os.WriteFile(filepath.Join(sub, "0"), nil, 0o644))
				for n := 1; n < 1000; n++ { // links to a file need almost no time and space
					must(t, os.Link(filepath.Join(sub, "0"), filepath.Join(sub, fmt.Sprint(n))))
				}
			}
		}, []string{"10000 files"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.In(t)
			dir := t.TempDir()
			web := filepath.Join(dir, "web")
			must(t, os.Mkdir(web, 0o755))
			must(t, os.WriteFile(filepath.Join(web, "main.tf"), []byte("output \"x\" { value = 1 }\n"), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(tc.app), 0o644))
			if tc.make != nil {
				tc.make(t, web)
			}
			r := w.CLI("app", "apply", dir)
			if r.Code != 2 || r.Stdout != "" {
				t.Errorf("exit code %d, want 2: %s%s", r.Code, r.Stdout, clip(r.Stderr))
			}
			for _, want := range tc.want {
				if !strings.Contains(r.Stderr, want) {
					t.Errorf("the error does not contain %q: %s", want, clip(r.Stderr))
				}
			}
			if len(r.Stderr) > 16<<10 {
				t.Errorf("the error has %d bytes, want at most 16 KiB: %s", len(r.Stderr), clip(r.Stderr))
			}
			if list := w.Must("app", "list"); strings.Contains(list, "bad") {
				t.Errorf("the app was published:\n%s", list)
			}
		})
	}
	t.Run("the same folder without errors", func(t *testing.T) {
		w.In(t)
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, "web"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "web", "main.tf"), []byte("output \"x\" { value = 1 }\n"), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(good), 0o644))
		w.Must("app", "apply", dir)
	})
}

// bomb returns an app.yaml whose aliases expand to 10^9 elements.
func bomb() string {
	var b bytes.Buffer
	b.WriteString("fairlead: v1\nname: bad\na: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c < 'j'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	return b.String()
}

func clip(s string) string { return s[:min(len(s), 2000)] }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
