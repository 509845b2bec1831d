// Package toolprocess runs a program of a vendor or a third party in a process group of its own, confined to the files of its job.
// The plugins script and program use it.
package toolprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/proctree"
)

// pidFile is a file of the workspace with the process number of the running program.
const pidFile = "tool.pid"

// Folders of a workspace, which Environment names: the program's home and temporary files.
const (
	homeFolder = "home"
	tmpFolder  = "tmp"
)

// MakeFolders creates the folders that Environment names in an empty workspace.
func MakeFolders(workspace string) error {
	for _, dir := range []string{homeFolder, tmpFolder} {
		if err := os.Mkdir(filepath.Join(workspace, dir), 0o700); err != nil {
			return fmt.Errorf("create the workspace: %w", err)
		}
	}
	return nil
}

// Environment returns a program's whole environment, without the variables that env.Complete adds: what every tool gets, the
// variables in pass that the operator sets, and those of the job spec.
func Environment(environ map[string]string, pass []string, spec plugin.Spec, workspace string) map[string]string {
	out := plugin.BaseEnv(environ, pass, filepath.Join(workspace, homeFolder))
	maps.Copy(out, spec.Env)
	out["TMPDIR"] = filepath.Join(workspace, tmpFolder)
	return out
}

// Process is one run of a program.
type Process struct {
	Name      string // of the program with its arguments, for messages
	Command   []string
	Dir       string
	Environ   map[string]string
	Workspace string   // the job's folder; the program may change it
	Readable  []string // further files that a confined program may read
	Stdin     *os.File // nil: empty
	Stdout    io.Writer
	Stderr    io.Writer // may be Stdout if that is safe for concurrent use
	Grace     time.Duration
	Confine   func(confine.Own, func() error) error // nil: not confined
	// Interrupting is called before the program is interrupted; nil: not needed.
	Interrupting func()
}

// End is how a process ended.
type End struct {
	Name        string
	Started     bool
	Interrupted bool // the program was interrupted because the context ended, and may have been killed
	Code        *int // exit code; nil: a signal killed the process, or it did not start
	Err         error
}

// Run starts the program and waits for its end. When ctx ends, it interrupts the program's process group once and kills the group
// after the grace period. If the step itself is killed, the interrupted program continues, like any tool that changes resources, and
// the agent waits for it. When Run returns, no process of the group is left.
func (p Process) Run(ctx context.Context) End {
	if err := ctx.Err(); err != nil {
		return End{Name: p.Name, Err: err}
	}
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Dir = p.Dir
	if p.Stdin != nil {
		cmd.Stdin = p.Stdin
	}
	cmd.Env = []string{}
	for name, value := range p.Environ {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var pid atomic.Int64
	started, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- p.confined(func() error {
			return p.start(context.WithoutCancel(ctx), cmd, func(n int) {
				pid.Store(int64(n))
				os.WriteFile(filepath.Join(p.Workspace, pidFile), []byte(strconv.Itoa(n)+"\n"), 0o600) // for people; no code reads it
				close(started)
			})
		})
	}()
	signalGroup := func(s syscall.Signal) {
		if n := int(pid.Load()); n > 1 {
			syscall.Kill(-n, s) // an error means that the group has ended
		}
	}
	err, interrupted := p.await(ctx, started, done, signalGroup)
	signalGroup(syscall.SIGKILL) // kill the leftover processes
	end := End{Name: p.Name, Started: pid.Load() > 0, Interrupted: interrupted, Err: err}
	exit, isExit := errors.AsType[*exec.ExitError](err)
	code := 0
	if isExit {
		code = exit.ExitCode() // -1: a signal killed it
	}
	if end.Started && code >= 0 && (isExit || err == nil) {
		end.Code = &code
	}
	return end
}

// confined runs f, which starts the program. Of the runner's files, the program can access only the job's workspace and what is
// readable.
func (p Process) confined(f func() error) error {
	if p.Confine == nil {
		return f()
	}
	return p.Confine(confine.Own{Read: p.Readable, Write: []string{p.Workspace}}, f)
}

// await waits for the end of the process and interrupts the process when ctx ends. It returns the process's error, and
// whether the process was interrupted.
func (p Process) await(ctx context.Context, started <-chan struct{}, done <-chan error, signalGroup func(syscall.Signal)) (err error, interrupted bool) {
	select {
	case err := <-done:
		return err, false
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err, false
	case <-started:
		if p.Interrupting != nil {
			p.Interrupting()
		}
		signalGroup(syscall.SIGINT)
	}
	timer := time.NewTimer(p.Grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err, true
	case <-timer.C:
		signalGroup(syscall.SIGKILL)
	}
	return <-done, true
}

// outputDrainTime bounds reading the last output of a process that has ended.
const outputDrainTime = time.Second

// start starts the process in a process group of its own and returns its error.
func (p Process) start(ctx context.Context, cmd *exec.Cmd, started func(pid int)) error {
	if proctree.SurvivorsSupported {
		return proctree.RunSurvivor(ctx, p.Workspace, cmd, p.Stdout, p.Stderr, started)
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p.Stdout, p.Stderr, outputDrainTime
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	started(cmd.Process.Pid)
	if err := cmd.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil // a leftover process keeps the output open
}

// Failure returns the error of a process that did not start, was interrupted by the end of ctx, was killed, or exited with another
// code than 0; else nil.
func (e End) Failure(ctx context.Context) error {
	switch {
	case !e.Started && ctx.Err() != nil && errors.Is(e.Err, ctx.Err()):
		return fmt.Errorf("start %s: %w", e.Name, e.Err)
	case !e.Started:
		return &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: e.Err,
			Message: fmt.Sprintf("%s cannot be started on this runner: %v. Check that the program in its first line exists and is built for this machine", e.Name, e.Err)}
	case e.Interrupted:
		return &plugin.Error{Reason: fairlead.ReasonToolFailed, Message: e.Name + " was interrupted", Err: errors.Join(ctx.Err(), e.Err)}
	case e.Code == nil:
		if _, ok := errors.AsType[*exec.ExitError](e.Err); !ok {
			return fmt.Errorf("run %s: %w", e.Name, e.Err)
		}
		return &plugin.Error{Reason: fairlead.ReasonToolKilled, Message: fmt.Sprintf("%s was killed by a signal: %s", e.Name, e.Err), Err: e.Err}
	case *e.Code != 0:
		return &plugin.Error{Reason: fairlead.ReasonToolFailed, Message: fmt.Sprintf("%s exited with %d", e.Name, *e.Code), Err: e.Err}
	}
	return nil
}
