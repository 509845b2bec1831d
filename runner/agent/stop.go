package agent

import (
	"context"
	"os"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

const (
	// shutdownTimeout bounds each of the last requests of an agent that stops.
	shutdownTimeout = 5 * time.Second
	// defaultGrace is the time that an interrupted step has to end if its claim does not set one.
	defaultGrace = 2 * time.Minute
	// graceSlack is the time that a step has for its report after its tool's grace.
	graceSlack = 15 * time.Second
)

func (a *Agent) startDraining(drain context.CancelFunc) {
	a.mu.Lock()
	a.draining = true
	n := len(a.steps)
	a.mu.Unlock()
	drain()
	notify(a.beatNow)
	if n > 0 {
		a.log.Info("draining: the agent claims no more jobs; a second signal interrupts the running steps", "running", n)
	}
}

// awaitSteps returns when idle is closed. After it has killed the steps, it waits for idle at most
// shutdownTimeout. The agent reports the deaths of the steps in this time. If the drain limit is over and
// the next agent finds the steps wherever it runs, awaitSteps interrupts none of them and returns true.
func (a *Agent) awaitSteps(ctx, agentCtx context.Context, stop <-chan os.Signal, idle <-chan struct{}) (leave bool) {
	var drainLimit <-chan time.Time
	if a.cfg.DrainFor > 0 {
		drainLimit = time.After(a.cfg.DrainFor)
	}
	select {
	case <-idle:
		return false
	case <-stop:
	case <-ctx.Done():
	case <-drainLimit:
		if a.executors.finder() != nil {
			a.log.Info("the steps that still run continue without this agent; the next agent watches them")
			return true
		}
	}
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
	grace := a.interrupt(agentCtx)
	select {
	case <-idle:
		return false
	case <-stop:
	case <-time.After(grace + graceSlack):
	}
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.killFor())
	defer cancel()
	for _, s := range a.launched() {
		a.log.Info("killing step", "attempt", s.handle.ID())
		if err := s.handle.Kill(kill); err != nil {
			a.log.Error("cannot kill a step; the next agent on this data folder kills it", "attempt", s.handle.ID(), "err", err)
		}
	}
	select {
	case <-idle:
	case <-time.After(shutdownTimeout): // the reports are on disk: the next agent sends them
	}
	return false
}

// killFor returns the longest time that the kill of a remaining step may take.
func (a *Agent) killFor() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	var longest time.Duration
	for _, s := range a.steps {
		longest = max(longest, s.killFor)
	}
	return longest
}

// launched returns the steps that were started. A step whose start has not finished is not in the
// result: the method add interrupts that step later.
func (a *Agent) launched() []*step {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*step
	for _, s := range a.steps {
		if s.handle != nil {
			all = append(all, s)
		}
	}
	return all
}

// interrupt interrupts every step and returns the longest of their graces.
func (a *Agent) interrupt(agentCtx context.Context) time.Duration {
	var grace time.Duration
	for _, s := range a.launched() {
		a.interruptWithRetry(agentCtx, s)
		grace = max(grace, s.grace)
	}
	return grace
}

// interruptWithRetry interrupts a step and retries until the executor accepts the interrupt. It
// retries because a stop signal or a mode change arrives only once: at that time the step's container
// may not exist yet, or the executor may not answer. It stops retrying when the step or the agent
// ends, or when the agent does not stop and the mode is no longer disabled.
func (a *Agent) interruptWithRetry(agentCtx context.Context, s *step) {
	a.mu.Lock()
	mine := !s.interrupting && !s.accepted
	s.interrupting = s.interrupting || mine
	a.mu.Unlock()
	if !mine {
		return
	}
	a.log.Info("interrupting step", "attempt", s.handle.ID())
	a.background.Go(func() {
		onChange := &change{log: a.log.With("attempt", s.handle.ID())}
		pause := patient(a.options).Pauses()
		for {
			err := s.handle.Interrupt()
			a.mu.Lock()
			s.accepted = err == nil
			s.interrupting = err != nil && (a.stopping || a.customerMode.Mode == fairlead.ModeDisabled)
			on := s.interrupting
			a.mu.Unlock()
			onChange.error("cannot interrupt a step yet; the agent tries again", err)
			if !on {
				return
			}
			select {
			case <-time.After(pause.NextBackOff()):
			case <-s.over:
				return
			case <-agentCtx.Done():
				return
			}
		}
	})
}
