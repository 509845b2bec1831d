package docker

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/executor"
)

// retryWait is the pause before the next request to an engine that did not answer how a step ended.
const retryWait = time.Second

const outOfMemory = "the kernel killed a process of the container because the container reached its memory limit (job.memory_limit)"

type handle struct {
	e  *Executor
	id string
	executor.Ending
}

func (h *handle) ID() string { return h.id }

// Wait waits on the engine. While the engine is down or restarts, Wait repeats the request: the containers may still run.
func (h *handle) Wait(ctx context.Context) (executor.Exit, error) {
	return h.Await(ctx, retryWait, func(ctx context.Context) error {
		err := h.see(ctx)
		if errdefs.IsNotFound(err) {
			h.Set(executor.Exit{Cause: fairlead.CauseVanished, Message: "the container of the step was removed by another program than its agent"})
			return nil
		}
		return err
	})
}

// errRunsAgain reports that the container runs again after it had stopped for a moment.
var errRunsAgain = errors.New("the container runs again")

// see waits until the container does not run, and records how the step ended.
func (h *handle) see(ctx context.Context) error {
	if err := h.running(ctx); err != nil {
		return err
	}
	c, err := h.inspect(ctx)
	if err != nil {
		return err
	}
	x, over := exitOf(c.Container.State)
	if !over {
		return errRunsAgain
	}
	if x.Cause == fairlead.CauseLaunchFailed {
		if err := h.e.Remove(ctx, h.id); err != nil {
			return err // the container must not start later
		}
	}
	h.Set(x)
	return nil
}

// The engine learns of the end of a container and of its lack of memory by two events, in any order. It is asked for the second one for
// so long after a kill; without it, the kill has no known cause.
const (
	memoryEvent = time.Second
	memoryAgain = 50 * time.Millisecond
)

// killed is the exit code of a process that SIGKILL ended.
const killed = 128 + int(syscall.SIGKILL)

// inspect returns the container, after the engine could learn whether it was killed for its memory.
func (h *handle) inspect(ctx context.Context) (client.ContainerInspectResult, error) {
	for end := time.Now().Add(memoryEvent); ; {
		c, err := h.e.engine.ContainerInspect(ctx, name(h.id), client.ContainerInspectOptions{})
		if err != nil {
			return c, err
		}
		s := c.Container.State
		if s == nil || s.Running || s.ExitCode != killed || s.OOMKilled || time.Now().After(end) {
			return c, nil
		}
		if err := retry.Sleep(ctx, memoryAgain); err != nil {
			return c, err
		}
	}
}

// running returns when the container does not run.
func (h *handle) running(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := h.e.engine.ContainerWait(ctx, name(h.id), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case err := <-w.Error:
		return err
	case <-w.Result:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// exitOf converts the state of a container. over is false while the container may still run.
func exitOf(s *container.State) (x executor.Exit, over bool) {
	switch {
	case s == nil || s.Running || s.Restarting || s.Paused:
		return x, false
	case s.Status == container.StateCreated:
		return executor.Never(fairlead.CauseLaunchFailed, "the engine did not start the container: %s", s.Error), true
	}
	return executor.ExitOf(s.ExitCode, s.OOMKilled, outOfMemory), true
}

// Interrupt sends SIGTERM to the step, which is the container's first process.
func (h *handle) Interrupt() error {
	if _, ok := h.Get(); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), ask)
	defer cancel()
	ran, err := h.signal(ctx, "SIGTERM")
	if err != nil || ran {
		return err
	}
	c, err := h.e.engine.ContainerInspect(ctx, name(h.id), client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil // the container was removed; Wait reports that
	case err != nil:
		return fmt.Errorf("interrupt step %s: %w", h.id, err)
	case c.Container.State != nil && c.Container.State.Status == container.StateCreated:
		return fmt.Errorf("interrupt step %s: the engine has not started its container yet", h.id)
	}
	return nil
}

// signal sends a signal to the container and reports whether it runs.
func (h *handle) signal(ctx context.Context, signal string) (ran bool, err error) {
	_, err = h.e.engine.ContainerKill(ctx, name(h.id), client.ContainerKillOptions{Signal: signal})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // a conflict means that the container does not run
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("send %s to the container of step %s: %w", signal, h.id, err)
	}
	return true, nil
}

// Kill kills the step. When the first process of the namespace ends, the kernel kills all others.
func (h *handle) Kill(ctx context.Context) error {
	if _, err := executor.Retry(ctx, passing, func(ctx context.Context) (bool, error) {
		return h.signal(ctx, "SIGKILL")
	}); err != nil {
		return err
	}
	if err := h.running(ctx); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("kill step %s: %w", h.id, err)
	}
	return nil
}

// Output reads what the engine has kept of the step's output.
func (h *handle) Output(ctx context.Context, limit int) (string, error) {
	r, err := h.e.engine.ContainerLogs(ctx, name(h.id), client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the output of step %s: %w", h.id, err)
	}
	defer r.Close()
	tail := executor.NewTail(limit)
	if _, err := stdcopy.StdCopy(tail, tail, r); err != nil {
		return "", fmt.Errorf("read the output of step %s: %w", h.id, err)
	}
	return tail.String(), nil
}
