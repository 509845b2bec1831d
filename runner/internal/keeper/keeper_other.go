//go:build unix && !linux

package keeper

import (
	"context"
	"os/exec"
	"syscall"
)

// Supported says whether Start can be used on this system.
const Supported = false

// Kept is a step below a keeper that this process has started.
type Kept struct{ Keeper, Step Process }

// Start is not to be called on this system; see Supported.
func Start(*exec.Cmd, *Orphans) (*Kept, error) { panic("keeper.Start: not supported on this system") }

// Wait is not to be called on this system.
func (k *Kept) Wait() (status syscall.WaitStatus, seen bool) { return 0, false }

// Kill is not to be called on this system.
func (k *Kept) Kill(context.Context) (all bool, err error) { return false, nil }

// Kill finds no keeper on this system.
func Kill(context.Context, Process) error { return nil }
