//go:build unix

package proctree

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// readOutput is how long what a process that has ended wrote last may take to arrive.
const readOutput = time.Second

// Run starts the command in a process group of its own, which on Linux the kernel kills
// together with this process, and waits for its end. It calls started with the process
// number, and interrupts the process, once, when ctx ends. Like Wait of the command it
// returns an *exec.ExitError of one that did not end well.
func Run(ctx context.Context, cmd *exec.Cmd, stdout, stderr io.Writer, started func(pid int)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay, cmd.SysProcAttr = stdout, stderr, readOutput, childAttributes()
	if err := cmd.Start(); err != nil {
		return err
	}
	started(cmd.Process.Pid)
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(os.Interrupt) }) // fails if it has just ended: fine
	defer stop()
	if err := cmd.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil // what it has left behind holds its output open
}
