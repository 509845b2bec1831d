//go:build unix && !linux

package process

import (
	"os/exec"

	"github.com/fairlead/fairlead/runner/internal/keeper"
	"github.com/fairlead/fairlead/runner/internal/proc"
)

// startIn is not called: this system has no control groups.
func startIn(proc.Group, *exec.Cmd, *keeper.Orphans) error { return proc.ErrNoGroup }
