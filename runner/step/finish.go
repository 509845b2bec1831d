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

// maxResends limits how often one report makes the step send the log again.
const maxResends = 5

// shortLog reports whether the control plane refused a report because bytes of the log are missing there.
func shortLog(err error) bool { return client.HasCode(err, "log-offset") }

// tooLarge reports whether a request is too large for the control plane or for a proxy before it. Sending it again does
// not help.
func tooLarge(err error) bool { return client.HasStatus(err, http.StatusRequestEntityTooLarge) }

// sizeOf returns the size of a report's outputs, in bytes: their names and values.
func sizeOf(outputs map[string]wire.FullOutput) int {
	size := 0
	for name, o := range outputs {
		size += len(name) + len(o.Value)
		if o.Encrypted != nil {
			size += len(o.Encrypted.Bytes)
		}
	}
	return size
}

// withoutOutputs returns the report without its outputs, which have size bytes and are too large. A succeeded job then
// fails with outputs-too-large; its changes stay. A plan with changes still succeeds: its outputs are not needed yet.
func withoutOutputs(report wire.FinishRequest, size int) wire.FinishRequest {
	report.Outputs = nil
	if report.Outcome != "succeeded" || report.Plan != nil && !report.Plan.NoOp {
		return report
	}
	report.Outcome, report.Reason, report.Plan = "failed", string(fairlead.ReasonOutputsTooLarge), nil
	report.Message = fmt.Sprintf("the outputs have %d bytes, more than the control plane accepts (%d, or less behind a front end with a lower limit). They were not stored, so no other component gets them. "+
		"Keep large values in files or buckets, and output their location", size, job.MaxOutputs)
	return report
}

// finish delivers the report and returns the step's exit code. It continues after the job's context has ended, while the
// control plane is down, and while a proxy answers in place of the control plane. A refused renewal does not stop it: the
// control plane refuses a renewal if the lease is lost, but also if it has already accepted the report. Only the answer to
// the report distinguishes these two cases.
func (a *execution) finish(ctx context.Context, c *client.Client, report wire.FinishRequest) int {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	pauses := a.quick(reportTimeout)
	pauses.Passing = func(err error) bool { return !client.Refused(err) && !tooLarge(err) }
	deliver := func() error {
		return retry.Run(ctx, pauses, func(ctx context.Context) error { return c.Finish(ctx, string(a.in.Job), report) })
	}
	if size := sizeOf(report.Outputs); size > job.MaxOutputs {
		report = withoutOutputs(report, size)
	}
	err := deliver()
	if size := sizeOf(report.Outputs); tooLarge(err) && size > 0 {
		// Some front ends accept less than the control plane. Lambda accepts 6 MB.
		a.Log.Error("the report is too large and is sent without its outputs", "job", a.in.Job, "bytes", size, "err", err)
		report = withoutOutputs(report, size)
		err = deliver()
	}
	for range maxResends {
		if !shortLog(err) || ctx.Err() != nil {
			break
		}
		// The control plane lacks log bytes that the step has sent. On AWS the subscription of the log group has often not
		// delivered the last bytes yet. On one machine a power cut can lose bytes that were acknowledged, because only the
		// log's end makes them durable. This disk still has the whole log, so the step sends the missing part again. logTailTimeout
		// bounds this, so that the report is not late.
		tail, stop := context.WithTimeout(ctx, logTailTimeout)
		rerr := logship.Rescue(tail, a.dir.Path(attempt.LogFile), a.append(c))
		stop()
		if rerr != nil {
			a.Log.Warn("the log cannot be sent again", "job", a.in.Job, "err", rerr)
		}
		err = deliver()
	}
	if shortLog(err) { // a report with a log that is marked as truncated is better than no report
		report.Log, report.LogTail = wire.LogEnd{Truncated: true}, nil
		err = deliver()
	}
	if e, ok := errors.AsType[*client.Error](err); ok && !stale(err) && (client.Refused(err) || tooLarge(err)) {
		// The report itself is refused. A job without a reported end would be worse than a report without details.
		a.Log.Error("the control plane refuses the report", "job", a.in.Job, "err", err)
		report = wire.FinishRequest{Outcome: "failed", Reason: string(fairlead.ReasonReportRefused), Mutated: report.Mutated, ExitCode: report.ExitCode, Log: report.Log, LogTail: report.LogTail,
			Message: "the control plane refused the job's report (" + http.StatusText(e.Status) + "): " + fairlead.Clip(e.Error(), maxMessage)}
		err = deliver()
	}
	switch {
	case err == nil:
	case stale(err):
		a.Log.Error("the report came too late: another attempt owns the lease", "job", a.in.Job, "err", err)
		return attempt.ExitStale
	default:
		a.Log.Error("the report could not be delivered", "job", a.in.Job, "outcome", report.Outcome, "err", err)
		return attempt.ExitUndelivered
	}
	return a.markReported(attempt.Tally{Outcome: report.Outcome, LogBytes: report.Log.Size, Renewals: a.renewals.Load(), Late: a.late.Load()})
}

// markReported records that the control plane has the job's report, and returns the step's exit code.
func (a *execution) markReported(t attempt.Tally) int {
	if err := a.dir.SaveTally(t); err != nil {
		a.Log.Warn("cannot save the job's counts: the agent's metrics will lack this job", "err", err)
	}
	if err := a.dir.MarkFinished(); err != nil {
		// The control plane already has the real end of the job.
		a.Log.Error("cannot write to the step's folder: the agent will report the step as dead", "err", err)
	}
	return attempt.ExitFinished
}
