//go:build unix && !linux

package proctree

import (
	"context"
	"io"
	"os/exec"
	"syscall"
)

// RunSurvivor is Run on this system: the process ends with the step only if it is killed.
func RunSurvivor(ctx context.Context, _ string, cmd *exec.Cmd, stdout, stderr io.Writer, started func(pid int)) error {
	return Run(ctx, cmd, stdout, stderr, started)
}

// childAttributes makes a process of a group of its own.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// SurvivorAtWork finds nothing on this system.
func SurvivorAtWork(string) bool { return false }

// AwaitSurvivor finds nothing on this system.
func AwaitSurvivor(context.Context, string) (Outcome, error) { return None, nil }
