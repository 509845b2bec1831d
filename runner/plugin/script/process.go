package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/proctree"
)

// process starts the executable and waits for its end. When ctx ends, it interrupts the executable's process group once
// and kills the group after the grace period. If the step itself is killed, the interrupted executable continues, like any tool
// that changes resources, and the agent waits for it. When process returns, no process of the group is left.
func (r *run) process(ctx context.Context) (plugin.Result, error) {
	if err := ctx.Err(); err != nil {
		return plugin.Result{}, fmt.Errorf("script: %w", err)
	}
	cmd := exec.Command("./"+r.file, r.argument)
	cmd.Dir = r.folder
	for name, value := range r.environ {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var pid atomic.Int64
	started, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- r.confined(func() error {
			return r.start(context.WithoutCancel(ctx), cmd, func(n int) {
				pid.Store(int64(n))
				os.WriteFile(r.path(pidFile), []byte(strconv.Itoa(n)+"\n"), 0o600) // for people; no code reads it
				close(started)
			})
		})
	}()
	signalGroup := func(s syscall.Signal) {
		if n := int(pid.Load()); n > 1 {
			syscall.Kill(-n, s) // an error means that the group has ended
		}
	}
	err, interrupted := await(ctx, r.spec.Grace.Duration(), started, done, signalGroup)
	signalGroup(syscall.SIGKILL) // kill the leftover processes
	return r.result(ctx, pid.Load() > 0, interrupted, err)
}

// confined runs f, which starts the executable. Of the runner's files, the executable can access only the job's workspace.
func (r *run) confined(f func() error) error {
	if r.env.Confine == nil {
		return f()
	}
	return r.env.Confine(confine.Own{Write: []string{r.env.Workspace}}, f)
}

// await waits for the end of the process and interrupts the process when ctx ends. It returns the process's error, and
// whether the process was interrupted.
func await(ctx context.Context, grace time.Duration, started <-chan struct{}, done <-chan error, signalGroup func(syscall.Signal)) (err error, interrupted bool) {
	select {
	case err := <-done:
		return err, false
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err, false
	case <-started:
		signalGroup(syscall.SIGINT)
	}
	timer := time.NewTimer(grace)
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
func (r *run) start(ctx context.Context, cmd *exec.Cmd, started func(pid int)) error {
	if proctree.SurvivorsSupported {
		return proctree.RunSurvivor(ctx, r.env.Workspace, cmd, r.env.Log, r.env.Log, started)
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = r.env.Log, r.env.Log, outputDrainTime
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

// result converts the end of the process to a result.
func (r *run) result(ctx context.Context, started, interrupted bool, err error) (plugin.Result, error) {
	res := plugin.Result{Mutated: started}
	line := "./" + r.file + " " + r.argument
	exit, isExit := errors.AsType[*exec.ExitError](err)
	code := 0
	if isExit {
		code = exit.ExitCode() // -1: a signal killed it
	}
	if code >= 0 && (isExit || err == nil) {
		res.ExitCode = &code
	}
	switch {
	case !started:
		return res, &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
			Message: fmt.Sprintf("%s cannot be started on this runner: %v. Check that the program in its first line exists and is built for this machine", line, err)}
	case interrupted:
		return res, &plugin.Error{Reason: fairlead.ReasonToolFailed, Message: line + " was interrupted", Err: errors.Join(ctx.Err(), err)}
	case code < 0:
		return res, &plugin.Error{Reason: fairlead.ReasonToolKilled, Message: fmt.Sprintf("%s was killed by a signal: %s", line, exit), Err: err}
	case isExit:
		return res, &plugin.Error{Reason: fairlead.ReasonToolFailed, Message: fmt.Sprintf("%s exited with %d", line, code), Err: err}
	case err != nil:
		return res, fmt.Errorf("run %s: %w", line, err)
	}
	return res, nil
}
