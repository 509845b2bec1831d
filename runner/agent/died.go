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

// waitForToolToSave waits until the tool of a dead step has saved its state, if the tool has a state.
// The step's death has interrupted the tool. The agent reports the death after this wait, because the
// control plane must start no new attempt before the tool has ended.
func (a *Agent) waitForToolToSave(agentCtx context.Context, by *launcher, attemptID string, exit executor.Exit) proctree.Outcome {
	if !by.place.Machine {
		return proctree.None // the step is the container's first process: the container ends with it
	}
	if exit.Code != nil {
		switch *exit.Code {
		case attempt.ExitFinished, attempt.ExitStale, attempt.ExitNotStarted, attempt.ExitUndelivered, attempt.ExitDiskFull:
			return proctree.None // the step ended its tool itself
		}
	}
	limit := a.saveTime(attemptID)
	os.Remove(filepath.Join(workspace.Path(by.work(a.cfg.Data), attemptID), workspace.Reserve)) // frees disk space that the tool may need; most steps have no reserve file
	ctx, cancel := context.WithTimeout(agentCtx, limit)
	defer cancel()
	began := a.now()
	o, err := a.options.awaitTool()(ctx, workspace.Path(by.work(a.cfg.Data), attemptID))
	if err != nil {
		a.log.Error("cannot wait for the tool of a dead step; it is killed, and its last state may be lost", "attempt", attemptID, "err", err)
	}
	if o != proctree.None {
		a.log.Info("a step died; the agent waited for its tool to save its state", "attempt", attemptID, "ended", o == proctree.Ended, "took", a.now().Sub(began), "limit", limit)
	}
	return o
}

// maxSave is the longest time that the tool of a dead step has to save its state.
const maxSave = 20 * time.Second

// saveTime bounds waitForToolToSave. A lease lasts three renewal periods, so at least two are left
// when the step dies. The tool gets two thirds of that time; the last third is for the kill, the
// rest of the log and the report. With a lease of 45 s the limit is 20 s.
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

// maxOutputTail is how many bytes of a dead step's own output are reported.
const maxOutputTail = 2 << 10

// outputFor bounds the read of a dead step's own output.
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
			a.log.Warn("cannot read the output of a dead step; its death is reported without it", "attempt", h.ID(), "err", err)
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

// reportDeath sends the report of a death until the control plane accepts or refuses it. Then it
// removes the attempt's files. It writes the report to disk first: if this agent ends, the next agent
// sends the report.
func (a *Agent) reportDeath(agentCtx context.Context, attemptID string, epoch int64, d wire.DiedRequest) {
	job, _ := jobOf(attemptID)
	kept := a.kept(attemptID)
	if _, err := os.Stat(string(kept)); err == nil {
		if err := kept.SaveDied(d); err != nil {
			a.log.Error("cannot write the report of a step's death to disk; if this agent ends, the report is lost", "attempt", attemptID, "err", err)
		}
	}
	if by, err := a.executors.by(agentCtx, attemptID); err != nil || !by.place.Shared {
		d.Log = nil // the step's log is not on this machine: the step sent all that exists
	} else if d.Log = a.rescueLog(agentCtx, attemptID, epoch); d.Reason == string(fairlead.CauseVanished) && d.Log != nil && d.Log.Size == 0 {
		d.Log = nil // the machine may have been down, and may have lost data that was not on disk yet
	}
	onChange := &change{log: a.log}
	pauses := patient(a.options)
	pauses.Passing = func(err error) bool { return !isPermanentRefusal(err) }
	err := retry.Run(agentCtx, pauses, func(ctx context.Context) error {
		request, cancel := context.WithTimeout(ctx, reportTimeout)
		defer cancel()
		err := a.session.do(request, func(c *client.Client) error { return c.Died(request, job, d) })
		if err != nil && isPermanentRefusal(err) {
			return err
		}
		if err != nil {
			a.status.Failed("report", err)
		}
		onChange.error("cannot report the death of a step yet; the agent tries again", err)
		return err
	})
	switch {
	case err == nil:
		a.log.Warn("a step died", "job", job, "epoch", epoch, "reason", d.Reason, "signal", d.Signal)
	case isPermanentRefusal(err):
		// The epoch is stale: the job continued without this attempt, so no report is needed.
		a.log.Info("the control plane does not need the report of a step's death", "job", job, "epoch", epoch, "err", err)
	default:
		return // the agent is stopping
	}
	a.remove(agentCtx, attemptID)
}

// rescueFor bounds the upload of a dead step's log. The report of the death waits for it, because a
// log cannot grow after its attempt has ended.
const rescueFor = 10 * time.Second

// rescueLog sends the part of the log that the step wrote to disk and did not send, and returns a
// description of the log if the log is complete. If the upload does not succeed in time, the log is
// marked as truncated.
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
		if !isPermanentRefusal(err) {
			a.log.Warn("cannot send the rest of a dead step's log; it is lost", "attempt", attemptID, "err", err)
		}
		return nil
	}
	end, whole := a.dir(attemptID).LogEnd()
	if !whole {
		return nil
	}
	sum, err := logship.Sum(a.dir(attemptID).Path(attempt.LogFile), end.Size)
	if err != nil {
		a.log.Warn("cannot read the log of a dead step; it is reported as incomplete", "attempt", attemptID, "err", err)
		return nil
	}
	return &wire.WholeLog{Size: end.Size, CRC32: sum}
}
