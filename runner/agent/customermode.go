package agent

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/internal/modefile"
)

// readModeEvery is how often an agent reads the customer's mode. It is shorter than the heartbeat
// period, because heartbeats report the mode.
const readModeEvery = 2 * time.Second

// readParameterEvery is the pause between two reads of the SSM parameter with the customer's mode. A
// change just after a read waits for its answer, for the pause, and for the next answer: ten seconds
// with the timeout of a request. SSM does not charge for reads of standard parameters, and permits 40 a
// second.
const readParameterEvery = 4 * time.Second

// readParameterAgain is the pause after a read without an answer. It is shorter, so that one lost
// request does not delay a change by more than those ten seconds.
const readParameterAgain = time.Second

// readCustomerMode returns two modes. kept is the mode in the data folder. effective is the strictest
// of kept, the environment's mode and the mode of the SSM parameter.
func (a *Agent) readCustomerMode() (effective, kept fairlead.CustomerMode) {
	kept, err := modefile.Read(a.cfg.Data)
	a.modeRead.error("cannot read the customer's mode; the agent starts no jobs until it can", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	effective = kept
	for _, m := range []fairlead.CustomerMode{a.parameterMode, a.startMode} {
		if m.Mode.Compare(effective.Mode) > 0 {
			effective = m
		}
	}
	return effective, kept
}

// watchCustomerMode applies the customer's mode until ctx ends. It works without the control plane.
func (a *Agent) watchCustomerMode(ctx context.Context) {
	for {
		effective, kept := a.readCustomerMode()
		a.setCustomerMode(ctx, effective)
		a.modeConfirmed.error("cannot confirm that the customer's mode is applied; the command that set it reports a failure", modefile.Confirm(a.cfg.Data, kept))
		wait := time.NewTimer(readModeEvery)
		select {
		case <-a.parameterRead:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// watchModeParameter reads the SSM parameter with the customer's mode until ctx ends. While SSM gives no
// answer, the last mode continues to apply: an outage of SSM must not stop a runner, and must not start
// one that the customer paused. Before the first answer the agent starts no jobs.
func (a *Agent) watchModeParameter(ctx context.Context) {
	if a.parameter == nil {
		return
	}
	read := change{log: a.log}
	for ctx.Err() == nil {
		m, err := a.parameter.Read(ctx)
		if ctx.Err() != nil {
			return
		}
		read.error("cannot read the customer's mode in its SSM parameter; the last mode continues to apply, or the agent starts no jobs", err)
		pause := readParameterAgain
		if m.Mode != "" {
			a.mu.Lock()
			a.parameterMode = m
			a.mu.Unlock()
			notify(a.parameterRead)
			pause = readParameterEvery
		}
		retry.Sleep(ctx, pause)
	}
}

// setCustomerMode applies the customer's mode. A mode that forbids new jobs cancels the current poll.
// If a claim arrives nevertheless, the agent releases it.
func (a *Agent) setCustomerMode(agentCtx context.Context, m fairlead.CustomerMode) {
	a.mu.Lock()
	before := a.customerMode
	a.customerMode = m
	if !m.Mode.TakesJobs() && a.endPoll != nil {
		a.endPoll()
	}
	running := len(a.steps)
	a.mu.Unlock()
	if before == m {
		return
	}
	a.log.Info("the customer's mode changed", "mode", m.Mode, "reason", m.Reason, "before", before.Mode, "running", running)
	notify(a.freed)
	notify(a.beatNow)
	if m.Mode == fairlead.ModeDisabled && before.Mode != fairlead.ModeDisabled {
		a.interrupt(agentCtx)
	}
}

// reportedMode returns the customer's mode for a heartbeat; nil: enabled. The caller holds mu.
func (a *Agent) reportedMode() *wire.CustomerMode {
	m := a.customerMode
	if m.Mode.TakesJobs() {
		return nil
	}
	out := &wire.CustomerMode{Mode: string(m.Mode), Reason: m.Reason}
	if !m.Since.IsZero() {
		since := m.Since.UTC()
		out.Since = &since
	}
	return out
}
