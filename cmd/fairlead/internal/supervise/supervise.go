// Package supervise runs a runner's agent as a separate process beside a control plane
// and restarts the agent when it ends. To stop the agent, the package sends SIGTERM. The
// first SIGTERM drains the agent, and the second stops it.
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

// steady is how long an agent must run before the pauses of restarts begin again with
// the shortest pause.
const steady = time.Minute

// outputWait is how long the agent's output is read after its end. Without a limit, a
// step that outlives the agent could keep the output open.
const outputWait = 2 * time.Second

// Agent describes how to run the agent.
type Agent struct {
	// Command returns a command that was not started. Run calls it before each
	// start.
	Command func(ctx context.Context) (*exec.Cmd, error)
	// Tell receives messages that a person must read. Note receives optional messages.
	Tell, Note func(text string)
	Now        func() time.Time
	// Again receives a value to stop a draining agent at once; nil: never.
	Again <-chan struct{}
}

// Run starts the agent and restarts it each time it ends, with growing pauses, until
// ctx ends. Then it asks the agent to drain, and returns when the agent has ended.
func Run(ctx context.Context, a Agent) {
	// 0.2 s, 0.4 s, …, 15 s: an agent that was killed must restart at once, and an
	// agent that cannot run must not fill the log.
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
		_ = retry.Sleep(ctx, pause) // the loop checks whether ctx has ended
	}
}

// once runs the agent to its end and returns how it ended.
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
		// Pdeathsig kills the agent when the thread that started it ends.
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
	a.signal(cmd.Process, "asking the runner to finish its jobs (interrupt again to stop it now)")
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
	_ = p.Signal(syscall.SIGTERM) // an error means that it has ended; once notices this
}

func reason(state *os.ProcessState, err error) string {
	if state != nil {
		return state.String()
	}
	return fmt.Sprint(err)
}
