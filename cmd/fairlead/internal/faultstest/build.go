//go:build linux

// Package faultstest runs the real programs, each in a process of its own, so
// that a test can kill any of them at any point of a deployment and see what
// is left. A Proxy between runner and control plane and gates in the deployed
// module hold a deployment exactly where a test wants it; nothing waits for
// time to pass.
package faultstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Programs are the paths of what is under test.
type Programs struct {
	Fairlead string // as a control plane
	Command  string // the same as a person's command, always without the race detector: it is started often
	Runner   string // `fairlead-runner`
	Tool     string // OpenTofu or Terraform
}

var built struct {
	sync.Mutex
	users int
	dir   string
}

// Build returns the programs, built as the test was (with the race detector or
// without). They are removed when the last test that asked for them has ended,
// so tests ask before they call t.Parallel. A machine without OpenTofu and
// Terraform skips the test.
func Build(t testing.TB) Programs {
	t.Helper()
	tool := findTool(t)
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "fairlead-faults-")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []struct {
			name, pkg string
			flags     []string
		}{{"fairlead", "cmd/fairlead", raceFlags}, {"fairlead-runner", "runner", raceFlags}, {"fairlead-command", "cmd/fairlead", nil}} {
			args := append(append([]string{"build"}, b.flags...), "-o", filepath.Join(dir, b.name), "github.com/fairlead/fairlead/"+b.pkg)
			if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
				os.RemoveAll(dir)
				t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
		built.dir = dir
	}
	built.users++
	t.Cleanup(func() {
		built.Lock()
		defer built.Unlock()
		if built.users--; built.users == 0 {
			os.RemoveAll(built.dir)
			built.dir = ""
		}
	})
	return Programs{Fairlead: filepath.Join(built.dir, "fairlead"), Command: filepath.Join(built.dir, "fairlead-command"),
		Runner: filepath.Join(built.dir, "fairlead-runner"), Tool: tool}
}

func findTool(t testing.TB) string {
	t.Helper()
	names := []string{"tofu", "terraform"}
	if v := os.Getenv("FAIRLEAD_TOFU"); v != "" {
		names = []string{v}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			if path, err = filepath.Abs(path); err == nil {
				return path
			}
		}
	}
	t.Skipf("FAULTS NOT TESTED: %s not found; set FAIRLEAD_TOFU to OpenTofu or Terraform", strings.Join(names, " and "))
	return ""
}
