//go:build unix && !linux

package proctree

import (
	"context"
	"io"
	"os/exec"
)

// SurvivorsSupported reports whether RunSurvivor can be used on this system.
const SurvivorsSupported = false

// Run is not to be called on this system; see Supported.
func RunSurvivor(context.Context, string, *exec.Cmd, io.Writer, io.Writer, func(pid int)) error {
	panic("survivor.Run: not supported on this system")
}

// AtWork finds nothing on this system.
func SurvivorAtWork(string) bool { return false }

// Await finds nothing on this system.
func AwaitSurvivor(context.Context, string) (Outcome, error) { return None, nil }
