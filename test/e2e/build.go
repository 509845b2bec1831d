//go:build linux

// Package e2e runs the real programs, each in its own process, so that a test can kill
// any of them at any point of a deployment and check what remains. A Proxy between
// runner and control plane and gates in the deployed module hold a deployment at the
// point that a test selects, without fixed waits.
package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/program"
)

// Programs are the paths of the tested programs.
type Programs struct {
	Fairlead string // as a control plane
	Command  string // the same program as the CLI, always without the race detector: it is started often
	Runner   string // `fairlead-runner`
	Tool     string // OpenTofu or Terraform
}

// Build builds the programs as the test was built, with or without the race detector.
// Build skips the test if the machine has neither OpenTofu nor Terraform.
func Build(t testing.TB) Programs {
	t.Helper()
	installed := program.CopiesWith(t, raceFlags, "runner", "runner/fairlead-step") // the agent finds fairlead-step beside itself
	return Programs{Tool: findTool(t), Fairlead: program.Build(t, "cmd/fairlead", raceFlags...),
		Runner: filepath.Join(installed, "runner"), Command: program.Build(t, "cmd/fairlead")}
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
