//go:build unix && !linux

package shim

import (
	"context"
	"os/exec"
	"syscall"
)

// Supported says whether Start can be used on this system.
const Supported = false

// Started is a step below a shim that this process has started.
type Started struct{ Shim, Step Process }

// Start is not to be called on this system; see Supported.
func Start(*exec.Cmd, *Orphans) (*Started, error) { panic("shim.Start: not supported on this system") }

// Wait is not to be called on this system.
func (k *Started) Wait() (status syscall.WaitStatus, seen bool) { return 0, false }

// Kill is not to be called on this system.
func (k *Started) Kill(context.Context) (all bool, err error) { return false, nil }

// Kill finds no shim on this system.
func Kill(context.Context, Process) error { return nil }
