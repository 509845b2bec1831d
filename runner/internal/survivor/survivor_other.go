//go:build unix && !linux

package survivor

import (
	"context"
	"io"
	"os/exec"
)

// Supported says whether Run can be used on this system.
const Supported = false

// Run is not to be called on this system; see Supported.
func Run(context.Context, string, *exec.Cmd, io.Writer, io.Writer, func(pid int)) error {
	panic("survivor.Run: not supported on this system")
}

// AtWork finds nothing on this system.
func AtWork(string) bool { return false }

// Await finds nothing on this system.
func Await(context.Context, string) (Outcome, error) { return None, nil }
