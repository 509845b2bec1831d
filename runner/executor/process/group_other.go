//go:build unix && !linux

package process

import (
	"os/exec"

	"github.com/fairlead/fairlead/runner/internal/shim"
	"github.com/fairlead/fairlead/runner/proctree"
)

// startIn is not called: this system has no control groups.
func startIn(proctree.Group, *exec.Cmd, *shim.Orphans) error { return proctree.ErrNoGroup }
