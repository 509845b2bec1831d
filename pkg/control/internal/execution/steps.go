package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/store"
)

// RenewLease extends the holder's lease, and then waits up to wait for the job
// to be canceled. A tool that has been silent for as long as its job allows is
// canceled here. The job is returned as it then is.
func (ex *Execution) RenewLease(ctx context.Context, h kernel.Holder, noOutput, wait time.Duration) (Job, error) {
	var out Job
	err := ex.Transact(ctx, "renew lease of job "+string(h.Job), func(tx *kernel.Tx) error {
		r, err := ex.Held(ctx, h)
		if err != nil {
			return err
		}
		r, err = applyJob(tx, r, job.Event{Kind: job.Renew, Epoch: h.Epoch})
		if e, hangs := r.V.NoOutputFor(noOutput); hangs && err == nil {
			r, err = applyJob(tx, r, e)
		}
		out = JobOf(r.V)
		return err
	})
	if err != nil || out.State == job.Canceling || ex.Intervals.Prompt {
		return out, err
	}
	err = ex.Wait(ctx, string(h.Job), wait, func(ctx context.Context) (bool, error) {
		r, err := ex.Held(ctx, h)
		out = JobOf(r.V)
		return r.V.State == job.Canceling, err
	})
	return out, err
}

// AppendLog stores data at offset of the attempt's log.
func (ex *Execution) AppendLog(ctx context.Context, h kernel.Holder, offset int64, data []byte) (int64, error) {
	if _, err := ex.Held(ctx, h); err != nil {
		return 0, err
	}
	stream := joblog.Stream{Job: string(h.Job), Epoch: h.Epoch}
	next, err := ex.Log.Append(ctx, stream, offset, data)
	if errors.Is(err, joblog.ErrNotFound) {
		// The power took the stream with it; its writer still has everything.
		if err = ex.Log.Open(ctx, stream); err == nil {
			next, err = ex.Log.Append(ctx, stream, offset, data)
		}
	}
	return next, logError(h.Job, err)
}

// RescueLog is AppendLog for the agent of a step that died before it had sent
// all of its log.
func (ex *Execution) RescueLog(ctx context.Context, s runners.Session, id fairlead.JobID, epoch, offset int64, data []byte) (int64, error) {
	if _, err := runnersJob(ex.Reading(ctx), s, id); err != nil {
		return 0, err
	}
	return ex.AppendLog(ctx, kernel.Holder{Job: id, Epoch: epoch}, offset, data)
}

// logError gives a kind to what a log refuses.
func logError(id fairlead.JobID, err error) error {
	if e, ok := errors.AsType[*joblog.OffsetError](err); ok {
		return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeLogOffset, Message: e.Error(),
			Details: map[string]string{"want": strconv.FormatInt(e.Want, 10)}, Err: err}
	}
	switch {
	case errors.Is(err, joblog.ErrFenced):
		return &fairlead.Error{Kind: fairlead.KindStale, Code: fairlead.CodeLogFenced, Message: "the log of this attempt has ended", Err: err}
	case errors.Is(err, joblog.ErrDiverged):
		return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeLogDiverged, Message: "other bytes are stored at this offset", Err: err}
	case errors.Is(err, joblog.ErrFull):
		return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeLogFull, Message: fmt.Sprintf("a log holds %d bytes", joblog.MaxStream), Err: err}
	case errors.Is(err, joblog.ErrNotFound):
		return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeLogNotFound, Message: fmt.Sprintf("job %s has no such log", id), Err: err}
	case err != nil:
		return fmt.Errorf("log of job %s: %w", id, err)
	}
	return nil
}

// The outcomes of a job that a step may report.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"
	OutcomeCanceled  = "canceled"
)

// Report is what a step says about its finished job.
type Report struct {
	Outcome   string
	Reason    fairlead.Reason
	Message   string
	ExitCode  *int          // of the tool; nil if none ran, or a signal ended it
	Mutated   bool          // the tool began to change something
	Salvaged  *job.Salvaged // nil: the runner keeps nothing of a state
	DiskFull  bool          // a disk of the runner had no space left
	Plan      *Plan
	Summary   []byte                    // JSON; what the plan would change, sensitive values masked
	Outputs   map[string]catalog.Output // all outputs in the state after the job
	LogSize   int64
	LogCRC32  uint32
	Truncated bool
}

// FinishJob ends the holder's job, and moves its deployment. It is accepted
// once; the same step repeating it hears success again. The log must be
// complete first: if bytes are missing, the answer says from where.
func (ex *Execution) FinishJob(ctx context.Context, h kernel.Holder, rep Report) error {
	e := job.Event{Epoch: h.Epoch, Reason: rep.Reason, Message: fairlead.Clip(rep.Message, 4000), ExitCode: rep.ExitCode, Salvaged: rep.Salvaged, DiskFull: rep.DiskFull}
	switch rep.Outcome {
	case OutcomeSucceeded:
		e.Kind = job.Succeed
	case OutcomeFailed:
		e.Kind = job.Fail
	case OutcomeCanceled:
		e.Kind = job.Stopped
	default:
		return fairlead.Invalid(fairlead.CodeInvalidOutcome, "%q is no outcome of a job", rep.Outcome)
	}
	if err := catalog.CheckOutputs(h.Job, rep.Outputs); err != nil {
		return err
	}
	if err := ex.endLog(ctx, h, rep); err != nil {
		return err
	}
	if err := ex.keepSummary(ctx, h, rep); err != nil {
		return err
	}
	return ex.Transact(ctx, "finish job "+string(h.Job), func(tx *kernel.Tx) error {
		r, err := ex.Store.Job(ctx, h.Job)
		if err != nil {
			return err
		}
		if finishedBy(r.V, h, e.Kind) {
			return nil // told before; its answer was lost
		}
		if r.V.Operation.Plans() && rep.Outcome == OutcomeSucceeded {
			if rep.Plan == nil {
				return fairlead.Invalid(fairlead.CodePlanMissing, "job %s succeeded at planning without a plan", h.Job)
			}
			if err := canVouch(tx, r.V, rep); fairlead.CodeOf(err) == fairlead.CodeVersionAltered {
				e.Kind, e.Reason, e.Message = job.Fail, fairlead.ReasonVersionAltered, err.Error()
			} else if err != nil {
				return err
			} else {
				r.V.Plan = (*store.Plan)(rep.Plan)
			}
		}
		if r, err = applyJob(tx, r, e); err != nil {
			return err
		}
		if err := learn(tx, r.V, rep); err != nil {
			return err
		}
		return advanceDeployment(tx, r.V)
	})
}

// canVouch reports why a plan that found nothing to change cannot say what its
// component is made from: that is read from the version, which may have been
// altered since the plan began.
func canVouch(tx *kernel.Tx, j store.Job, rep Report) error {
	if j.Operation != job.OpPlan || !rep.Plan.NoOp {
		return nil
	}
	_, err := catalog.ReadVersion(tx, j.Version)
	return err
}

// keepSummary stores the summary of a plan before its job ends: whoever sees
// the plan sees the summary.
func (ex *Execution) keepSummary(ctx context.Context, h kernel.Holder, rep Report) error {
	if len(rep.Summary) == 0 {
		return nil
	}
	return ex.Transact(ctx, "keep plan summary of job "+string(h.Job), func(tx *kernel.Tx) error {
		r, err := ex.Store.Job(ctx, h.Job)
		if err != nil || !r.V.State.Leased() || r.V.Lease.Epoch != h.Epoch {
			// Whether the report is stale, or was told before, is judged with the
			// job's end; what a person may be looking at is not replaced.
			return err
		}
		tx.PutPlanSummary(h.Job, h.Epoch, store.PlanSummary{Summary: rep.Summary})
		return nil
	})
}

// finishedBy reports whether the job ended by the holder's own report. A job
// that was given up (lost, poison) was not.
func finishedBy(j store.Job, h kernel.Holder, k job.Kind) bool {
	if j.Lease.Epoch != h.Epoch || j.Lease.Step == "" {
		return false
	}
	switch j.State {
	case job.Succeeded:
		return k == job.Succeed
	case job.Failed:
		return (k == job.Fail || k == job.Stopped || j.Reason == fairlead.ReasonVersionAltered) && j.Reason != fairlead.ReasonPoison
	case job.Canceled:
		return k == job.Stopped
	}
	return false
}

// endLog holds the log against what its writer says of it, and ends it.
func (ex *Execution) endLog(ctx context.Context, h kernel.Holder, rep Report) error {
	s := joblog.Stream{Job: string(h.Job), Epoch: h.Epoch}
	chunk, err := ex.Log.Read(ctx, s, max(0, rep.LogSize), 1) // only its Info is wanted, so at its end
	if errors.Is(err, joblog.ErrNotFound) && rep.LogSize > 0 {
		err = &joblog.OffsetError{Want: 0} // the power took all of it; its writer has it
	} else if errors.Is(err, joblog.ErrNotFound) {
		if err = ex.Log.Open(ctx, s); err == nil {
			chunk, err = ex.Log.Read(ctx, s, 0, 1)
		}
	}
	if err != nil {
		return logError(h.Job, err)
	}
	switch {
	case chunk.Info.Size < rep.LogSize:
		return logError(h.Job, &joblog.OffsetError{Want: chunk.Info.Size})
	case chunk.Info.Size > rep.LogSize || chunk.Info.CRC32 != rep.LogCRC32:
		// The writer lost track of its own log. What is stored is kept and
		// marked; the job's outcome matters more.
		ex.Logger.Warn("a log does not match what its writer says", "stream", s.String(), "size", chunk.Info.Size, "reported", rep.LogSize)
		rep.Truncated = true
	}
	return logError(h.Job, ex.Log.End(ctx, s, rep.Truncated))
}

// stateIsTrue reports whether the state of a component has all that an apply or
// destroy did which did not succeed: its tool changed nothing, or ended by itself
// and saved its state.
func (rep Report) stateIsTrue() bool {
	switch rep.Reason {
	case fairlead.ReasonStateUnsaved, fairlead.ReasonStateIncomplete, fairlead.ReasonReportRefused:
		return false
	}
	return !rep.Mutated || rep.ExitCode != nil
}

// learn records what a finished job says about its component.
func learn(tx *kernel.Tx, j store.Job, rep Report) error {
	if j.Component == "" {
		return nil
	}
	k, err := tx.Component(j.Install, j.Component)
	if err != nil {
		return err
	}
	if j.State != job.Succeeded {
		switch {
		case j.Operation == job.OpApply && rep.Reason == fairlead.ReasonOutputsTooLarge:
			// All that it should make is there. Those that it had before are not its outputs any more.
			k.V.State, k.V.Version, k.V.Deployment, k.V.Lost = store.Present, j.Version, j.Deployment, ""
			k.V.Outputs, k.V.OutputsBlob = nil, ""
			tx.PutComponent(k)
		case j.Operation.Mutates() && rep.stateIsTrue():
			k.V.State, k.V.Deployment = store.Failed, j.Deployment
			tx.PutComponent(k)
		}
		return nil
	}
	noOp := j.Plan != nil && j.Plan.NoOp
	switch {
	case j.Operation == job.OpApply: // whose commit has noted what it is given
		k.V.State, k.V.Version, k.V.Deployment = store.Present, j.Version, j.Deployment
		if err := catalog.KeepOutputs(tx, &k.V, rep.Outputs); err != nil {
			return err
		}
	case j.Operation == job.OpPlan && noOp:
		if learned, err := vouch(tx, &k, j, rep); err != nil || !learned {
			return err
		}
	case j.Operation == job.OpDestroy, j.Operation == job.OpPlanDestroy && noOp && k.V.State != store.Absent:
		tx.Drop(k.V.OutputsBlob, k.V.VarsBlob)
		k.V.State, k.V.Deployment, k.V.Outputs, k.V.Vars, k.V.Env = store.Absent, j.Deployment, nil, nil, nil
		k.V.OutputsBlob, k.V.VarsBlob = "", ""
	default:
		return nil
	}
	k.V.Lost = ""
	tx.PutComponent(k)
	return nil
}

// vouch records that a plan found nothing to change: what is there is what its
// version would make of it with its variables, and is destroyed by those. Of an
// empty module nothing is there, and nothing missing; it counts as present, so
// that its outputs can be used.
//
// A plan-only deployment moves no component to its version: somebody asked what
// would change. Only of a component of which nothing is known it is believed,
// as there is nothing better. It reports whether anything was learned.
func vouch(tx *kernel.Tx, k *store.Stored[store.Component], j store.Job, rep Report) (bool, error) {
	if k.V.State == store.Present {
		d, err := tx.Store.Deployment(tx.Ctx, j.Deployment)
		if err != nil || d.V.PlanOnly {
			return false, err
		}
	}
	inst, err := tx.Store.Install(tx.Ctx, j.Org, j.InstallName)
	if err != nil {
		return false, err
	}
	v, err := catalog.ReadVersion(tx, j.Version)
	if err != nil {
		return false, err
	}
	// As they were resolved for the plan: neither inputs nor the outputs of what
	// the component needs are changed by anybody else while a deployment runs.
	vars, err := catalog.ResolveVars(tx, inst.V, v, j.Component)
	if err != nil {
		return false, fmt.Errorf("resolve variables of component %s: %w", j.Component, err)
	}
	if err := madeFrom(tx, k, inst.V, v, vars); err != nil {
		return false, err
	}
	k.V.State, k.V.Deployment = store.Present, j.Deployment
	if k.V.TypeOf().Blind {
		return true, nil // its outputs are those of its last apply
	}
	err = catalog.KeepOutputs(tx, &k.V, rep.Outputs)
	return err == nil, err
}

// madeFrom notes what a component is made from, for the day it is destroyed: its
// version, what it needs by that, and its variables, sealed. They belong
// together: files of one version fail at the variables of another, and what
// components of several versions need may be one another. What environment
// variables its tool had is noted for Effective.
func madeFrom(tx *kernel.Tx, k *store.Stored[store.Component], inst store.Install, v catalog.Version, vars map[string]appspec.Resolved) error {
	raw, err := json.Marshal(catalog.VarsRecord(vars))
	if err != nil {
		return fmt.Errorf("encode vars of component %s: %w", k.V.Name, err)
	}
	if err := catalog.KeepVars(tx, &k.V, raw); err != nil {
		return err
	}
	if err := catalog.KeepEnv(tx, inst, &k.V); err != nil {
		return err
	}
	k.V.Version, k.V.DependsOn = v.ID, nil
	if spec, ok := v.Spec.Component(k.V.Name); ok {
		k.V.Type, k.V.DependsOn = spec.Type, spec.DependsOn
	}
	return nil
}

// AttemptAccess returns the holder's own way to its attempt's log and artifacts.
// A job that has none is of KindNotFound: its log goes through the API.
func (ex *Execution) AttemptAccess(ctx context.Context, h kernel.Holder) (identity.Access, error) {
	r, err := ex.Held(ctx, h)
	if err != nil {
		return identity.Access{}, err
	}
	none := &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeNoLogAccess,
		Message: fmt.Sprintf("job %s has no way to its log but the API", h.Job)}
	if ex.Access == nil || r.V.Install == "" {
		return identity.Access{}, none
	}
	stack, ok, err := runners.StackOf(ex.Reading(ctx), r.V.Runner)
	if err != nil {
		return identity.Access{}, err
	}
	if !ok || stack.Install != r.V.Install {
		return identity.Access{}, none
	}
	a, err := ex.Access.Grant(ctx, identity.Scope{Runner: r.V.Runner, Install: stack.Install, App: stack.App, Job: h.Job, Epoch: h.Epoch})
	if err != nil {
		return a, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeLogAccessUnavailable, Message: "access to the log could not be had", Hint: "Write it through the API, or ask again.", Err: err}
	}
	return a, nil
}
