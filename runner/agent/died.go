package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/logship"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/workspace"
)

// waitForToolToSave waits for the tool of a step that died, if it is one that has a state
// to save: the death of its step has interrupted it. The agent reports the death
// only afterwards, because the control plane must start nothing before the tool
// has ended.
func (a *Agent) waitForToolToSave(agentCtx context.Context, by *launcher, attemptID string, exit executor.Exit) proctree.Outcome {
	if !by.place.Machine {
		return proctree.None // a container ends with the step, which is its first process
	}
	if exit.Code != nil {
		switch *exit.Code {
		case attempt.ExitFinished, attempt.ExitStale, attempt.ExitNotStarted, attempt.ExitUndelivered, attempt.ExitDiskFull:
			return proctree.None // it has ended its tool itself
		}
	}
	limit := a.saveTime(attemptID)
	os.Remove(filepath.Join(workspace.Path(by.work(a.cfg.Data), attemptID), workspace.Reserve)) // it may be what the tool needs now; most have none
	ctx, cancel := context.WithTimeout(agentCtx, limit)
	defer cancel()
	began := a.now()
	o, err := a.options.awaitTool()(ctx, workspace.Path(by.work(a.cfg.Data), attemptID))
	if err != nil {
		a.log.Error("the tool of a dead step gets no time to save its state", "attempt", attemptID, "err", err)
	}
	if o != proctree.None {
		a.log.Info("a step died; its tool was interrupted", "attempt", attemptID, "ended", o == proctree.Ended, "took", a.now().Sub(began), "limit", limit)
	}
	return o
}

// maxSave is how long a tool whose step has died may take to save its state.
const maxSave = 20 * time.Second

// saveTime bounds waitForToolToSave. A lease lasts three periods of renewal, so two are
// left at least when the step dies; a third of them is kept for the killing, the
// rest of the log, and the report. With a lease of 45 s that makes 20 s.
func (a *Agent) saveTime(attemptID string) time.Duration {
	in, err := a.kept(attemptID).Input()
	if err != nil {
		return 0
	}
	limit := maxSave
	if in.Grace > 0 {
		limit = min(limit, in.Grace)
	}
	if renew := a.dir(attemptID).Renew(); renew > 0 {
		limit = min(limit, renew*4/3)
	}
	return limit
}

// maxOutputTail is how much of a dead step's own output is reported, in bytes.
const maxOutputTail = 2 << 10

// outputFor bounds the reading of a dead step's own output.
const outputFor = 10 * time.Second

func (a *Agent) deathReason(agentCtx context.Context, by *launcher, h executor.Handle, epoch int64, exit executor.Exit) wire.DiedRequest {
	d := wire.DiedRequest{Epoch: epoch, ExitCode: exit.Code, Signal: exit.Signal, Reason: string(exit.Cause.Reported()), Message: exit.Message,
		DiskFull: exit.Code != nil && *exit.Code == attempt.ExitDiskFull}
	var output string
	if by.place.Shared {
		output = a.dir(h.ID()).Tail(attempt.StderrFile, maxOutputTail)
	}
	if output == "" {
		ctx, cancel := context.WithTimeout(agentCtx, outputFor)
		defer cancel()
		var err error
		if output, err = h.Output(ctx, maxOutputTail); err != nil {
			a.log.Warn("what a dead step has said is not known", "attempt", h.ID(), "err", err)
		}
	}
	if text := strings.TrimSpace(redact.New().String(output)); text != "" {
		if d.Message != "" {
			d.Message += "\n"
		}
		d.Message += text
	}
	return d
}

// reportDeath reports a death until the control plane has taken the report, then removes
// what the attempt has left. The report is on disk first: if this agent ends,
// the next one makes it.
func (a *Agent) reportDeath(agentCtx context.Context, attemptID string, epoch int64, d wire.DiedRequest) {
	job, _ := jobOf(attemptID)
	kept := a.kept(attemptID)
	if _, err := os.Stat(string(kept)); err == nil {
		if err := kept.SaveDied(d); err != nil {
			a.log.Error("the report is not kept", "attempt", attemptID, "err", err)
		}
	}
	if by, err := a.executors.by(agentCtx, attemptID); err != nil || !by.place.Shared {
		d.Log = nil // the step has sent all that there is to be had of it
	} else if d.Log = a.rescueLog(agentCtx, attemptID, epoch); d.Reason == string(fairlead.CauseVanished) && d.Log != nil && d.Log.Size == 0 {
		d.Log = nil // the machine may have been down, and have lost what was not on its disk
	}
	onChange := &change{log: a.log}
	pauses := patient(a.options)
	pauses.Passing = func(err error) bool { return !refusedForGood(err) }
	err := retry.Run(agentCtx, pauses, func(ctx context.Context) error {
		request, cancel := context.WithTimeout(ctx, reportTimeout)
		defer cancel()
		err := a.session.do(request, func(c *client.Client) error { return c.Died(request, job, d) })
		if err != nil && refusedForGood(err) {
			return err
		}
		if err != nil {
			a.status.Failed("report", err)
		}
		onChange.error("the death of a step cannot be reported yet", err)
		return err
	})
	switch {
	case err == nil:
		a.log.Warn("a step died", "job", job, "epoch", epoch, "reason", d.Reason, "signal", d.Signal)
	case refusedForGood(err):
		// Stale: the job has gone on without this attempt. That is settled, too.
		a.log.Info("the death of a step is old news", "job", job, "epoch", epoch, "err", err)
	default:
		return // the agent ends
	}
	a.remove(agentCtx, attemptID)
}

// rescueFor bounds the sending of a dead step's log. The report of its death
// waits for it, because a log cannot grow after its attempt is over.
const rescueFor = 10 * time.Second

// rescueLog sends what the step had kept of its log and not sent, and describes
// the log if nothing is missing. If that does not succeed soon the log ends
// early and is marked so.
func (a *Agent) rescueLog(agentCtx context.Context, attemptID string, epoch int64) *wire.WholeLog {
	ctx, cancel := context.WithTimeout(agentCtx, rescueFor)
	defer cancel()
	job, _ := jobOf(attemptID)
	err := logship.Rescue(ctx, a.dir(attemptID).Path(attempt.LogFile), func(ctx context.Context, offset int64, data []byte) (next int64, err error) {
		err = a.session.do(ctx, func(c *client.Client) error {
			next, err = c.RescueLog(ctx, job, epoch, offset, data)
			return err
		})
		return next, logship.Answered(err)
	})
	if err != nil {
		if !refusedForGood(err) {
			a.log.Warn("the end of a dead step's log is lost", "attempt", attemptID, "err", err)
		}
		return nil
	}
	end, whole := a.dir(attemptID).LogEnd()
	if !whole {
		return nil
	}
	sum, err := logship.Sum(a.dir(attemptID).Path(attempt.LogFile), end.Size)
	if err != nil {
		a.log.Warn("the log of a dead step cannot be read", "attempt", attemptID, "err", err)
		return nil
	}
	return &wire.WholeLog{Size: end.Size, CRC32: sum}
}
