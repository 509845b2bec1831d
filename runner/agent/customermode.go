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

// readCustomerMode returns two modes. kept is the mode in the data folder. effective is the stricter
// mode of kept and the environment's mode.
func (a *Agent) readCustomerMode() (effective, kept fairlead.CustomerMode) {
	kept, err := modefile.Read(a.cfg.Data)
	a.modeRead.error("cannot read the customer's mode; the agent starts no jobs until it can", err)
	if a.startMode.Mode.Compare(kept.Mode) > 0 {
		return a.startMode, kept
	}
	return kept, kept
}

// watchCustomerMode applies the customer's mode until ctx ends. It works without the control plane.
func (a *Agent) watchCustomerMode(ctx context.Context) {
	for {
		effective, kept := a.readCustomerMode()
		a.setCustomerMode(ctx, effective)
		a.modeConfirmed.error("cannot confirm that the customer's mode is applied; the command that set it reports a failure", modefile.Confirm(a.cfg.Data, kept))
		retry.Sleep(ctx, readModeEvery)
		if ctx.Err() != nil {
			return
		}
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
