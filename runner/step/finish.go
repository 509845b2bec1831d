package step

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/logship"
)

// maxResends is how often the log is sent again for one report.
const maxResends = 5

// shortLog reports whether a report was refused because bytes of the log are
// missing at the other side.
func shortLog(err error) bool { return client.HasCode(err, "log-offset") }

// tooLarge reports whether something is larger than the way to the control plane
// lets through, whoever says so: it does not become smaller by being sent again.
func tooLarge(err error) bool { return client.HasStatus(err, http.StatusRequestEntityTooLarge) }

// sizeOf returns how many bytes the outputs take in a report.
func sizeOf(outputs map[string]wire.FullOutput) int {
	size := 0
	for name, o := range outputs {
		size += len(name) + len(o.Value)
	}
	return size
}

// withoutOutputs returns the report of a job whose outputs, of the size in bytes,
// cannot be reported. The job changed what it changed: it failed only to hand on
// its outputs. Those of a plan that changes something are not needed yet.
func withoutOutputs(report wire.FinishRequest, size int) wire.FinishRequest {
	report.Outputs = nil
	if report.Outcome != "succeeded" || report.Plan != nil && !report.Plan.NoOp {
		return report
	}
	report.Outcome, report.Reason, report.Plan = "failed", string(fairlead.ReasonOutputsTooLarge), nil
	report.Message = fmt.Sprintf("the outputs have %d bytes, which is more than the control plane takes (%d, or less where it is behind a front end with a lower limit). They were not stored, so no other component gets them. "+
		"Keep large values in files or buckets, and output where they are", size, job.MaxOutputs)
	return report
}

// finish delivers the report and returns the step's exit code. It does not end
// with the job's context, and it goes on while the control plane is down, or
// somebody else answers in its place. What the lease hears meanwhile does not
// stop it: a renewal is refused as soon as the report was accepted, and only the
// answer to the report itself tells that apart from a lease that was lost.
func (a *execution) finish(ctx context.Context, c *client.Client, report wire.FinishRequest) int {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishFor)
	defer cancel()
	pauses := a.quick(finishFor)
	pauses.Passing = func(err error) bool { return !client.Refused(err) && !tooLarge(err) }
	deliver := func() error {
		return retry.Run(ctx, pauses, func(ctx context.Context) error { return c.Finish(ctx, string(a.in.Job), report) })
	}
	if size := sizeOf(report.Outputs); size > job.MaxOutputs {
		report = withoutOutputs(report, size)
	}
	err := deliver()
	if size := sizeOf(report.Outputs); tooLarge(err) && size > 0 {
		// Some front end takes less than the control plane, such as the 6 MB of Lambda.
		a.Log.Error("the report is too large and goes without its outputs", "job", a.in.Job, "bytes", size, "err", err)
		report = withoutOutputs(report, size)
		err = deliver()
	}
	for range maxResends {
		if !shortLog(err) || ctx.Err() != nil {
			break
		}
		// What was acknowledged of the log is not there any more: the power took
		// it, which only its end makes durable. It is all on this disk yet.
		// It has the time of a log's end and no more, or the report would come late.
		tail, stop := context.WithTimeout(ctx, tailFor)
		rerr := logship.Rescue(tail, a.dir.Path(attempt.LogFile), a.append(c))
		stop()
		if rerr != nil {
			a.Log.Warn("the log cannot be sent again", "job", a.in.Job, "err", rerr)
		}
		err = deliver()
	}
	if shortLog(err) { // rather a log that says that it is truncated than no report
		report.Log = wire.LogEnd{Truncated: true}
		err = deliver()
	}
	if e, ok := errors.AsType[*client.Error](err); ok && !stale(err) && (client.Refused(err) || tooLarge(err)) {
		// The report itself is not acceptable. A job that has no reported end would
		// be worse than one that has lost its details.
		a.Log.Error("the control plane refuses the report", "job", a.in.Job, "err", err)
		report = wire.FinishRequest{Outcome: "failed", Reason: string(fairlead.ReasonReportRefused), Mutated: report.Mutated, ExitCode: report.ExitCode, Log: report.Log,
			Message: "the control plane refused the job's report (" + http.StatusText(e.Status) + "): " + fairlead.Clip(e.Error(), maxMessage)}
		err = deliver()
	}
	switch {
	case err == nil:
	case stale(err):
		a.Log.Error("the report came too late: the lease belongs to somebody else", "job", a.in.Job, "err", err)
		return attempt.ExitStale
	default:
		a.Log.Error("the report could not be delivered", "job", a.in.Job, "outcome", report.Outcome, "err", err)
		return attempt.ExitUndelivered
	}
	return a.over(attempt.Tally{Outcome: report.Outcome, LogBytes: report.Log.Size, Renewals: a.renewals.Load(), Late: a.late.Load()})
}

// over notes that the control plane knows how the job ended, and returns the step's
// exit code.
func (a *execution) over(t attempt.Tally) int {
	if err := a.dir.SaveTally(t); err != nil {
		a.Log.Warn("the agent's metrics will lack this job", "err", err)
	}
	if err := a.dir.MarkFinished(); err != nil {
		// The agent will report a death; the control plane knows better.
		a.Log.Error("the step folder cannot be written", "err", err)
	}
	return attempt.ExitFinished
}
