//go:build unix && !linux

package shim

import (
	"context"
	"os/exec"
	"syscall"
)

// Supported reports whether Start works on this system.
const Supported = false

// Started is a step below a shim that this process started.
type Started struct{ Shim, Step Process }

// Start must not be called on this system; see Supported.
func Start(*exec.Cmd, *Orphans) (*Started, error) { panic("shim.Start: not supported on this system") }

// Wait must not be called on this system.
func (k *Started) Wait() (status syscall.WaitStatus, seen bool) { return 0, false }

// Kill must not be called on this system.
func (k *Started) Kill(context.Context) (all bool, err error) { return false, nil }

// Kill does nothing: this system has no shims.
func Kill(context.Context, Process) error { return nil }
