package shim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/runner/internal/shim/child"
	"github.com/fairlead/fairlead/runner/proctree"
)

// Supported reports whether Start works on this system.
const Supported = true

// Started is a step below a shim that this process started.
type Started struct {
	Shim, Step Process

	lines *bufio.Reader
	pipe  *os.File
	over  chan struct{} // closed when the shim has ended
	clean bool          // set before over closes; true: the shim ended by itself, so none of its descendants is left
}

const (
	// startFor bounds the time in which a shim must start its step.
	startFor = 10 * time.Second
	// reportFor bounds the time in which a shim must report the step's end.
	reportFor = 5 * time.Second
)

// Start starts the command below a shim, in a new session that the shim leads. The command's Stdin,
// Stdout and Stderr must be nil or *os.File. Start ignores its ExtraFiles and SysProcAttr.
func Start(cmd *exec.Cmd, orphans *Orphans) (*Started, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	// /proc/self/exe is the running program even if its file was replaced meanwhile.
	c := &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{child.Name, cmd.Path}, cmd.Args[1:]...), Dir: cmd.Dir, Env: cmd.Env,
		Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, ExtraFiles: []*os.File{w}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	err = orphans.Start(c)
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	k := &Started{lines: bufio.NewReader(r), pipe: r, over: make(chan struct{})}
	k.Shim = processOf(c.Process.Pid)
	r.SetReadDeadline(time.Now().Add(startFor))
	what, text, err := k.next()
	r.SetReadDeadline(time.Time{})
	if err == nil && what == child.Began {
		var pid int
		pid, err = strconv.Atoi(text)
		k.Step = processOf(pid)
	} else if err == nil {
		err = errors.New(text)
	}
	if err != nil {
		c.Process.Kill()
		orphans.Wait(c)
		r.Close()
		return nil, fmt.Errorf("start a step below a shim: %w", err)
	}
	go func() { // returns when the shim has ended
		defer close(k.over)
		k.clean = orphans.Wait(c) == nil
	}()
	return k, nil
}

// processOf returns the process with this PID. Start is 0 if the process has just ended.
func processOf(pid int) Process {
	p, err := proctree.Stat(pid)
	if err != nil {
		return Process{PID: pid}
	}
	return Process{PID: pid, Start: p.Start}
}

// next reads a line of the shim's report.
func (k *Started) next() (what, text string, err error) {
	line, err := k.lines.ReadString('\n')
	if err != nil {
		return "", "", err
	}
	what, text, _ = strings.Cut(strings.TrimSpace(line), " ")
	return what, text, nil
}

// Wait waits for the end of the step and returns its status. seen is false if the shim did not report
// the step's end, for example because it was killed first. Wait may be called only once.
func (k *Started) Wait() (status syscall.WaitStatus, seen bool) {
	watched, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	go func() {
		if proctree.WaitGone(watched, k.Step.PID, k.Step.Start) == nil {
			k.pipe.SetReadDeadline(time.Now().Add(reportFor))
			syscall.Kill(k.Shim.PID, syscall.SIGCONT) // a job may have stopped the shim to hide the step's end
		}
	}()
	what, text, err := k.next()
	n, perr := strconv.ParseUint(text, 10, 32)
	seen = err == nil && what == child.Ended && perr == nil
	k.pipe.Close()
	return syscall.WaitStatus(n), seen
}

// Kill calls the function Kill for its shim and waits for the shim's end. It may be called before or
// after Wait. all is true if the shim ended by itself. In this case none of its descendants is left.
func (k *Started) Kill(ctx context.Context) (all bool, err error) {
	if err := Kill(ctx, k.Shim); err != nil {
		return false, err
	}
	select {
	case <-k.over:
		return k.clean, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Kill kills the descendants of the shim until the shim ends. The shim ends when it has no descendant
// left. If the shim is stopped (SIGSTOP), Kill continues it (SIGCONT).
func Kill(ctx context.Context, shim Process) error {
	if err := proctree.KillBelow(ctx, shim.PID, shim.Start); err != nil {
		return fmt.Errorf("kill the descendants of the shim %d: %w", shim.PID, err)
	}
	return nil
}
