// Package supervise keeps a runner's agent running as a process of its own
// beside a control plane, and stops it the way its signals are defined: once to
// drain, twice to stop.
package supervise

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/fairlead/fairlead/pkg/retry"
)

// steady is how long an agent runs before its end counts as the first one.
const steady = time.Minute

// outputWait is how long the agent's output is waited for after its end: a
// step that outlives it may hold the other end.
const outputWait = 2 * time.Second

// Agent says how the process is started.
type Agent struct {
	// Command returns a command that was not started; it is asked for before
	// each start.
	Command func(ctx context.Context) (*exec.Cmd, error)
	// Tell is called with what a person has to know, Note with what they may
	// want to know.
	Tell, Note func(text string)
	Now        func() time.Time
	// Again gets a value when draining shall end at once; nil: never.
	Again <-chan struct{}
}

// Run starts the agent, and starts it again with growing pauses whenever it
// ends, until ctx ends. Then the agent is asked to drain, and Run returns when
// it has ended.
func Run(ctx context.Context, a Agent) {
	// 0.2 s, 0.4 s, …: a broken agent must not fill the log, and one that was
	// killed must be back at once.
	pauses := &backoff.ExponentialBackOff{InitialInterval: 200 * time.Millisecond, RandomizationFactor: 0.1, Multiplier: 2, MaxInterval: 15 * time.Second}
	pauses.Reset()
	for ctx.Err() == nil {
		began := a.Now()
		why := a.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if a.Now().Sub(began) > steady {
			pauses.Reset()
		}
		pause := pauses.NextBackOff()
		a.Tell(fmt.Sprintf("the runner ended (%s); starting it again in %.1f s", why, pause.Seconds()))
		_ = retry.Sleep(ctx, pause) // the loop asks whether ctx has ended
	}
}

// once runs the agent to its end and says how it ended.
func (a Agent) once(ctx context.Context) string {
	cmd, err := a.Command(ctx)
	if err != nil {
		return err.Error()
	}
	cmd.WaitDelay = outputWait
	cmd.SysProcAttr = attributes()
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		// The kernel ties the child to the thread that starts it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Sprintf("cannot start %s: %v", cmd.Path, err)
	}
	select {
	case err := <-ended:
		return reason(cmd.ProcessState, err)
	case <-ctx.Done():
	}
	a.signal(cmd.Process, "asking the runner to finish what it runs (again: not to wait)")
	for {
		select {
		case err := <-ended:
			return reason(cmd.ProcessState, err)
		case <-a.Again:
			a.signal(cmd.Process, "stopping the runner")
		}
	}
}

func (a Agent) signal(p *os.Process, text string) {
	a.Note(text)
	_ = p.Signal(syscall.SIGTERM) // an error says that it has ended, which is noticed anyway
}

func reason(state *os.ProcessState, err error) string {
	if state != nil {
		return state.String()
	}
	return fmt.Sprint(err)
}
