//go:build unix && !linux

package proctree

import (
	"context"
	"io"
	"os/exec"
)

// SurvivorsSupported reports whether RunSurvivor works on this system.
const SurvivorsSupported = false

// RunSurvivor must not be called on this system; see SurvivorsSupported.
func RunSurvivor(context.Context, string, *exec.Cmd, io.Writer, io.Writer, func(pid int)) error {
	panic("proctree.RunSurvivor: not supported on this system")
}

// SurvivorAtWork returns false on this system.
func SurvivorAtWork(string) bool { return false }

// AwaitSurvivor returns None on this system.
func AwaitSurvivor(context.Context, string) (Outcome, error) { return None, nil }
