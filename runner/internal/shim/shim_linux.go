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

// Supported says whether Start can be used on this system.
const Supported = true

// Started is a step below a shim that this process has started.
type Started struct {
	Shim, Step Process

	lines *bufio.Reader
	pipe  *os.File
	over  chan struct{} // closed when the shim is gone
	clean bool          // set before: the shim has ended by itself, so nothing is left below it
}

const (
	// startFor is how long a shim may take to start its step.
	startFor = 10 * time.Second
	// sayFor is how long it may take to say that the step has ended.
	sayFor = 5 * time.Second
)

// Start starts the command below a shim, in a session of its own that the
// shim leads. The command's files must be files, and its ExtraFiles and
// SysProcAttr are not heeded.
func Start(cmd *exec.Cmd, orphans *Orphans) (*Started, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	// The running program, also if its file was replaced meanwhile.
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
		return nil, fmt.Errorf("start below a shim: %w", err)
	}
	go func() { // ends with the shim
		defer close(k.over)
		k.clean = orphans.Wait(c) == nil
	}()
	return k, nil
}

// processOf returns the process of a number; one that has just ended is none.
func processOf(pid int) Process {
	p, err := proctree.Stat(pid)
	if err != nil {
		return Process{PID: pid}
	}
	return Process{PID: pid, Start: p.Start}
}

func (k *Started) next() (what, text string, err error) {
	line, err := k.lines.ReadString('\n')
	if err != nil {
		return "", "", err
	}
	what, text, _ = strings.Cut(strings.TrimSpace(line), " ")
	return what, text, nil
}

// Wait waits for the end of the step and returns its status. seen is false if
// the shim was killed before it, or says nothing of it. To be called once.
func (k *Started) Wait() (status syscall.WaitStatus, seen bool) {
	watched, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	go func() {
		if proctree.WaitGone(watched, k.Step.PID, k.Step.Start) == nil {
			k.pipe.SetReadDeadline(time.Now().Add(sayFor))
			syscall.Kill(k.Shim.PID, syscall.SIGCONT) // a job may have stopped it, to hide the step's end
		}
	}()
	what, text, err := k.next()
	n, perr := strconv.ParseUint(text, 10, 32)
	seen = err == nil && what == child.Ended && perr == nil
	k.pipe.Close()
	return syscall.WaitStatus(n), seen
}

// Kill is the Kill of its shim, after Wait or before. all is true if the shim has ended
// by itself: then nothing is left of what it has kept.
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

// Kill kills all that is below the shim until the shim ends, as it does
// when nothing is below it. One that was stopped is made to go on.
func Kill(ctx context.Context, shim Process) error {
	if err := proctree.KillBelow(ctx, shim.PID, shim.Start); err != nil {
		return fmt.Errorf("end what is below the shim %d: %w", shim.PID, err)
	}
	return nil
}
