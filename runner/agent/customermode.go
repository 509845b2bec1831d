package agent

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/internal/modefile"
)

// readModeEvery is how often an agent reads the mode that its customer has set. It
// is less than the time between two heartbeats, which report it.
const readModeEvery = 2 * time.Second

// readCustomerMode returns the customer's mode: the stricter of those that the
// environment and the data folder have; and the latter alone.
func (a *Agent) readCustomerMode() (effective, kept fairlead.CustomerMode) {
	kept, err := modefile.Read(a.cfg.Data)
	a.modeRead.error("the customer's mode cannot be read; nothing is begun until it can", err)
	if a.startMode.Mode.Compare(kept.Mode) > 0 {
		return a.startMode, kept
	}
	return kept, kept
}

// watchCustomerMode applies the customer's mode until ctx ends. It needs no control
// plane for that.
func (a *Agent) watchCustomerMode(ctx context.Context) {
	for {
		effective, kept := a.readCustomerMode()
		a.setCustomerMode(ctx, effective)
		a.modeConfirmed.error("a person who waits for it does not learn that the customer's mode is applied", modefile.Confirm(a.cfg.Data, kept))
		retry.Sleep(ctx, readModeEvery)
		if ctx.Err() != nil {
			return
		}
	}
}

// setCustomerMode applies the customer's mode. Leaving ModeEnabled cancels the
// current poll; a claim that still arrives is released.
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
	a.log.Info("the customer's mode", "mode", m.Mode, "reason", m.Reason, "before", before.Mode, "running", running)
	notify(a.freed)
	notify(a.beatNow)
	if m.Mode == fairlead.ModeDisabled && before.Mode != fairlead.ModeDisabled {
		a.interrupt(agentCtx)
	}
}

// reportedMode is the customer's mode as a heartbeat carries it; nil: enabled. The
// lock is held.
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
