package execution

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/store"
)

// RenewLease extends the holder's lease. After that it waits for a cancelation of the
// job, for the duration wait at most. It cancels the job if the job's tool wrote no
// output for longer than the job allows. It returns the job in its new state.
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

// LogTerms are the terms on which a step sends its log.
type LogTerms struct {
	Every time.Duration // how long the step may keep bytes; 0: the step's default
	Bulk  time.Duration // the same for a piece of more than 8 KiB; 0: Every
	Cut   bool          // the step sends no more of the log
}

// LogTerms returns the terms of the holder's step. If LogTerms cannot find out whether a reader follows the
// log, it assumes that no reader does, because a renewal must not fail for that.
func (ex *Execution) LogTerms(ctx context.Context, h kernel.Holder) LogTerms {
	alone := LogTerms{Every: ex.Intervals.LogEvery, Bulk: ex.Intervals.LogBulk}
	if ex.Intervals.LogFollowed <= 0 {
		return alone
	}
	followed, err := ex.Log.Followed(ctx, joblog.Stream{Job: string(h.Job), Epoch: h.Epoch})
	if err == nil && followed {
		return LogTerms{Every: ex.Intervals.LogFollowed}
	}
	alone.Cut = errors.Is(err, joblog.ErrCut)
	return alone
}

// AppendLog stores data at an offset of the attempt's log.
func (ex *Execution) AppendLog(ctx context.Context, h kernel.Holder, offset int64, data []byte) (int64, error) {
	r, err := ex.Held(ctx, h)
	if err != nil {
		return 0, err
	}
	next, err := ex.appendLog(ctx, h, r.V.Runner, offset, data)
	return next, logError(h.Job, err)
}

func (ex *Execution) appendLog(ctx context.Context, h kernel.Holder, runner fairlead.RunnerID, offset int64, data []byte) (int64, error) {
	stream := joblog.Stream{Job: string(h.Job), Epoch: h.Epoch}
	log := joblog.Budgeted{Log: ex.Log, Runner: string(runner), Budget: ex.LogBudget, Now: ex.Now, OnCut: func(s joblog.Stream) {
		ex.Logger.Warn("a log was cut: its runner has used up its budget of log bytes", "stream", s.String(), "runner", runner)
	}}
	next, err := log.Append(ctx, stream, offset, data)
	if errors.Is(err, joblog.ErrNotFound) {
		// A power failure lost the stream; its writer still has all bytes.
		if err = ex.Log.Open(ctx, stream); err == nil {
			next, err = log.Append(ctx, stream, offset, data)
		}
	}
	return next, err
}

// RescueLog is AppendLog for the agent of a step that died before it sent its complete
// log.
func (ex *Execution) RescueLog(ctx context.Context, s runners.Session, id fairlead.JobID, epoch, offset int64, data []byte) (int64, error) {
	if _, err := runnersJob(ex.Reading(ctx), s, id); err != nil {
		return 0, err
	}
	return ex.AppendLog(ctx, kernel.Holder{Job: id, Epoch: epoch}, offset, data)
}

// logError converts an error of the log to an error with a kind.
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
	case errors.Is(err, joblog.ErrCut):
		return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeLogCut, Message: fmt.Sprintf("the log of job %s was cut: %v", id, err), Err: err}
	case errors.Is(err, joblog.ErrNotFound):
		return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeLogNotFound, Message: fmt.Sprintf("job %s has no such log", id), Err: err}
	case errors.Is(err, joblog.ErrExpired):
		return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeLogExpired, Message: fmt.Sprintf("the log of job %s cannot be read: %v", id, err),
			Hint: "The vendor's operator can bring it back while CloudWatch Logs has it: replay the dead letters, then read it again.", Err: err}
	case err != nil:
		return fmt.Errorf("log of job %s: %w", id, err)
	}
	return nil
}

// The outcomes that a step can report.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"
	OutcomeCanceled  = "canceled"
)

// Report is a step's report of its finished job.
type Report struct {
	Outcome   string
	Reason    fairlead.Reason
	Message   string
	ExitCode  *int          // of the tool; nil if no tool ran, or a signal ended it
	Mutated   bool          // the tool began to make changes
	Salvaged  *job.Salvaged // nil: the runner keeps no unsaved state
	DiskFull  bool          // a disk of the runner was full
	Plan      *Plan
	ChangeSet []byte                    // JSON of changeset.Set; also the summary of an earlier runner
	Outputs   map[string]catalog.Output // all outputs in the state after the job
	Built     *Built                    // of a build that succeeded
	Key       string                    // public key with which the step encrypts; "": its runner has no seed
	Moved     map[string]catalog.Moved  // secrets of the install that the step has encrypted, by place
	LogSize   int64
	LogCRC32  uint32
	Truncated bool
	LogTail   LogTail // the bytes of the log that the step has not sent before; LogSize counts them
}

// LogTail is the end of a log, from an offset. Without data the writer has sent the whole log before.
type LogTail struct {
	Offset int64
	Data   []byte
}

// Built is the result of a build.
type Built struct {
	Artifact string // digest
	Revision string // as in BuiltBy
	// Statement is the in-toto statement about the build, of at most events.MaxStatement bytes.
	Statement []byte
}

// FinishJob ends the holder's job and advances its deployment. If the same step repeats
// its report, FinishJob succeeds again. The log must be complete before the report. If
// bytes are missing, the error contains the offset of the first missing byte.
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
		return fairlead.Invalid(fairlead.CodeInvalidOutcome, "%q is not an outcome of a job", rep.Outcome)
	}
	if err := catalog.CheckOutputs(h.Job, rep.Outputs); err != nil {
		return err
	}
	if err := ex.endLog(ctx, h, rep); err != nil {
		return err
	}
	if err := ex.keepChangeSet(ctx, h, rep); err != nil {
		return err
	}
	if err := ex.keepKey(ctx, h, rep); err != nil {
		return err
	}
	if err := ex.keepMoved(ctx, h, rep); err != nil {
		return err
	}
	built, err := ex.attest(ctx, h, rep)
	if err != nil {
		return err
	}
	return ex.Transact(ctx, "finish job "+string(h.Job), func(tx *kernel.Tx) error {
		tx.ByRunner = "finish-job"
		r, err := ex.Store.Job(ctx, h.Job)
		if err != nil {
			return err
		}
		if finishedBy(r.V, h, e.Kind) {
			return nil // a repeated report, whose first answer was lost
		}
		if r.V.Operation.Plans() && rep.Outcome == OutcomeSucceeded {
			if rep.Plan == nil {
				return fairlead.Invalid(fairlead.CodePlanMissing, "plan job %s succeeded without a plan", h.Job)
			}
			if err := canVouch(tx, r.V, rep); fairlead.CodeOf(err) == fairlead.CodeVersionAltered {
				e.Kind, e.Reason, e.Message = job.Fail, fairlead.ReasonVersionAltered, err.Error()
			} else if err != nil {
				return err
			} else {
				r.V.Plan = (*store.Plan)(rep.Plan)
			}
		}
		if err := recordBuild(&r.V, rep, built); err != nil {
			return err
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

// canVouch returns an error if the version of a plan without changes cannot be read.
// vouch records the component as made from this version, and the version may have been
// altered since the plan began.
func canVouch(tx *kernel.Tx, j store.Job, rep Report) error {
	if j.Operation != job.OpPlan || !rep.Plan.NoOp {
		return nil
	}
	_, err := catalog.ReadVersion(tx, j.Version)
	return err
}

// keepKey records the public key of the job's install, if it is not the recorded one. It has a commit of its own, because the job's
// end may change the install too.
func (ex *Execution) keepKey(ctx context.Context, h kernel.Holder, rep Report) error {
	if rep.Key == "" {
		return nil
	}
	if _, err := installkey.ParsePublic(rep.Key); err != nil {
		return err
	}
	return ex.Transact(ctx, "keep the key that job "+string(h.Job)+" uses", func(tx *kernel.Tx) error {
		r, err := ex.Store.Job(ctx, h.Job)
		if err != nil || !r.V.State.Leased() || r.V.Lease.Epoch != h.Epoch {
			return err // FinishJob then decides whether the report is stale or repeated
		}
		in, err := store.Optional(tx.Store.Install(ctx, r.V.Org, r.V.InstallName))
		if err != nil || in.V.ID != r.V.Install {
			return err
		}
		if runners.KeepKey(&in.V, store.InstallKey{Public: rep.Key, Since: tx.Now, Runner: r.V.Runner}) {
			tx.PutInstall(in)
		}
		return nil
	})
}

// keepMoved replaces the secrets of the job's install that the control plane sealed by what the step has encrypted. It has a commit of
// its own, before the job ends, so that the end of the job records its component with them. While another job of the deployment runs,
// it replaces nothing, because the spec of that job has the digest of what it must fetch; the next job that is alone replaces them.
func (ex *Execution) keepMoved(ctx context.Context, h kernel.Holder, rep Report) error {
	if len(rep.Moved) == 0 {
		return nil
	}
	return ex.Transact(ctx, "keep the secrets that job "+string(h.Job)+" encrypted", func(tx *kernel.Tx) error {
		r, err := ex.Store.Job(ctx, h.Job)
		if err != nil || !r.V.State.Leased() || r.V.Lease.Epoch != h.Epoch {
			return err // FinishJob then decides whether the report is stale or repeated
		}
		d, err := tx.Store.Deployment(ctx, r.V.Deployment)
		if err != nil {
			return err
		}
		for _, n := range d.V.Nodes {
			for _, id := range []fairlead.JobID{n.PlanJob, n.ApplyJob} {
				if id == "" || id == h.Job {
					continue
				}
				other, err := ex.Store.Job(ctx, id)
				if err != nil || other.V.State.Leased() {
					return err
				}
			}
		}
		in, err := store.Optional(tx.Store.Install(ctx, r.V.Org, r.V.InstallName))
		if err != nil || in.V.ID != r.V.Install {
			return err
		}
		return catalog.KeepMoved(tx, in, rep.Moved)
	})
}

// keepChangeSet stores the change set of a plan before its job ends, so that a reader who
// sees the plan also finds its change set.
func (ex *Execution) keepChangeSet(ctx context.Context, h kernel.Holder, rep Report) error {
	if len(rep.ChangeSet) == 0 {
		return nil
	}
	return ex.Transact(ctx, "keep change set of job "+string(h.Job), func(tx *kernel.Tx) error {
		r, err := ex.Store.Job(ctx, h.Job)
		if err != nil || !r.V.State.Leased() || r.V.Lease.Epoch != h.Epoch {
			// FinishJob then decides whether the report is stale or repeated. A change set
			// that a person may be reading is not replaced.
			return err
		}
		tx.PutChangeSet(h.Job, h.Epoch, store.ChangeSet{JSON: rep.ChangeSet})
		return nil
	})
}

// finishedBy reports whether the holder's own report ended the job. If the job was lost
// before the report, the report did not end it.
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

// endLog stores the end of the log that the report brings, compares the log with the size and checksum of its writer, and ends it.
func (ex *Execution) endLog(ctx context.Context, h kernel.Holder, rep Report) error {
	s := joblog.Stream{Job: string(h.Job), Epoch: h.Epoch}
	if len(rep.LogTail.Data) > 0 {
		r, err := ex.Store.Job(ctx, h.Job)
		if err != nil {
			return err
		}
		switch _, err = ex.appendLog(ctx, h, r.V.Runner, rep.LogTail.Offset, rep.LogTail.Data); {
		case errors.Is(err, joblog.ErrCut), errors.Is(err, joblog.ErrDiverged), errors.Is(err, joblog.ErrFull):
			// The log lacks these bytes for good, and is marked as truncated below. The job's outcome matters more.
		case errors.Is(err, joblog.ErrFenced), errors.Is(err, joblog.ErrMoved), errors.Is(err, joblog.ErrExpired):
			// The log has ended, with the first report if this one repeats it. If a later attempt has the lease, FinishJob refuses
			// the report.
		case err != nil:
			return logError(h.Job, err)
		}
	}
	chunk, err := ex.Log.Read(ctx, s, max(0, rep.LogSize), 1) // only to get its Info, so at its end
	if errors.Is(err, joblog.ErrNotFound) && rep.LogSize > 0 {
		err = &joblog.OffsetError{Want: 0} // a power failure lost the whole stream; its writer still has it
	} else if errors.Is(err, joblog.ErrNotFound) {
		if err = ex.Log.Open(ctx, s); err == nil {
			chunk, err = ex.Log.Read(ctx, s, 0, 1)
		}
	}
	if err != nil {
		return logError(h.Job, err)
	}
	switch {
	case chunk.Info.Cut: // the writer may have more, which the log does not accept; End marks the log as truncated
	case chunk.Info.Size < rep.LogSize:
		return logError(h.Job, &joblog.OffsetError{Want: chunk.Info.Size})
	case chunk.Info.Size > rep.LogSize || chunk.Info.CRC32 != rep.LogCRC32:
		// The writer's numbers do not match the stored log. The log is kept and marked
		// as incomplete, because the job's outcome matters more.
		ex.Logger.Warn("a log does not match the size and checksum that its writer reported", "stream", s.String(), "size", chunk.Info.Size, "reported", rep.LogSize)
		rep.Truncated = true
	}
	return logError(h.Job, ex.Log.End(ctx, s, rep.Truncated))
}

// stateIsTrue reports whether the state contains all changes of an apply or destroy
// that did not succeed: the tool changed nothing, or it ended by itself and saved its
// state.
func (rep Report) stateIsTrue() bool {
	switch rep.Reason {
	case fairlead.ReasonStateUnsaved, fairlead.ReasonStateIncomplete, fairlead.ReasonReportRefused:
		return false
	}
	return !rep.Mutated || rep.ExitCode != nil
}

// learn updates a component from the report of a finished job.
func learn(tx *kernel.Tx, j store.Job, rep Report) error {
	if j.Component == "" || j.Run != nil { // a run of an action changes no record of a component
		return nil
	}
	k, err := tx.Component(j.Install, j.Component)
	if err != nil {
		return err
	}
	if j.State != job.Succeeded {
		switch {
		case j.Operation == job.OpApply && rep.Reason == fairlead.ReasonOutputsTooLarge:
			// The apply succeeded, so its outputs replace all earlier ones.
			k.V.State, k.V.Version, k.V.Deployment = store.Present, j.Version, j.Deployment
			k.V.Settle()
			k.V.Outputs, k.V.OutputsBlob, k.V.OutputsFingerprint = nil, "", ""
			tx.PutComponent(k)
		case j.Operation.Mutates() && rep.stateIsTrue():
			k.V.State, k.V.Deployment, k.V.Base = store.Failed, j.Deployment, nil
			tx.PutComponent(k)
		}
		return nil
	}
	noOp := j.Plan != nil && j.Plan.NoOp
	switch {
	case j.Operation == job.OpApply: // markUnknown stored the variables before the apply
		k.V.State, k.V.Version, k.V.Deployment = store.Present, j.Version, j.Deployment
		inst, err := tx.Store.Install(tx.Ctx, j.Org, j.InstallName)
		if err != nil {
			return err
		}
		if err := catalog.KeepOutputs(tx, inst.V, &k.V, rep.Outputs); err != nil {
			return err
		}
	case j.Operation == job.OpPlan && noOp:
		if learned, err := vouch(tx, &k, j, rep); err != nil || !learned {
			return err
		}
	case j.Operation == job.OpDestroy, j.Operation == job.OpPlanDestroy && noOp && k.V.State != store.Absent:
		tx.Drop(k.V.OutputsBlob, k.V.VarsBlob)
		k.V.State, k.V.Deployment, k.V.Outputs, k.V.Vars, k.V.VarDigests = store.Absent, j.Deployment, nil, nil, nil
		k.V.OutputsBlob, k.V.OutputsFingerprint, k.V.VarsBlob, k.V.EnvDigest = "", "", "", ""
	default:
		return nil
	}
	if err := catalog.KeepBase(tx, &k.V); err != nil {
		return err
	}
	k.V.Settle()
	tx.PutComponent(k)
	return nil
}

// vouch records that a plan found no changes: the component is what its version and
// variables produce, so a later destroy uses these. A component of an empty module
// counts as present, so that its outputs can be used.
//
// A plan-only deployment does not set the version of a component, because a person only
// asked what would change. The exception is a component without any record, because its
// plan is the best information. vouch reports whether it changed k.
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
	// These are the values that the plan used: while a deployment runs, no other
	// request changes inputs, or outputs of components that this component needs.
	if tooLarge, err := madeFrom(tx, k, inst.V, v); err != nil || tooLarge > 0 {
		return false, err // variables that are too large are not recorded, so the next deployment plans the component again
	}
	k.V.State, k.V.Deployment = store.Present, j.Deployment
	if k.V.TypeOf().Blind {
		return true, nil // the outputs stay those of its last apply
	}
	err = catalog.KeepOutputs(tx, inst.V, &k.V, rep.Outputs)
	return err == nil, err
}

// madeFrom stores what a later destroy of the component needs: its version, the
// components that it needs in this version, and its variables, sealed. They are stored
// together, because the files of one version may not accept the variables of another,
// and the needs of several versions can form a cycle. It also stores a digest of the
// tool's environment variables, which Effective compares. tooLarge is that of catalog.KeepMade.
func madeFrom(tx *kernel.Tx, k *store.Stored[store.Component], inst store.Install, v catalog.Version) (tooLarge int, err error) {
	if k.V.InSandbox, err = catalog.InSandbox(tx, inst, v, k.V.Name); err != nil {
		return 0, err
	}
	inst = inst.In(k.V.InSandbox)
	if tooLarge, err = catalog.KeepMade(tx, inst, v, &k.V); err != nil || tooLarge > 0 {
		return tooLarge, err
	}
	if k.V.BoundAt = (time.Time{}); inst.Bound != nil {
		k.V.BoundAt = inst.Bound.At
	}
	ofVersion(k, v)
	return 0, nil
}

// ofVersion records the version of the component, and what it is in this version.
func ofVersion(k *store.Stored[store.Component], v catalog.Version) {
	k.V.Version, k.V.DependsOn, k.V.Size, k.V.OwnImage = v.ID, nil, job.Size{}, false
	if spec, ok := v.Spec.Component(k.V.Name); ok {
		k.V.Type, k.V.DependsOn, k.V.Size, k.V.OwnImage = spec.Type, spec.DependsOn, sizeOf(spec), spec.HasImage()
	}
}

// logWithheld reports whether the holder gets no access to its log's record: its runner has used up its budget of log
// bytes, or the log was cut. Writes to the record cost money before the control plane sees them, so this bounds what a
// runner can write there after its budget is used up: the credentials that it already has expire after 15 minutes.
// If logWithheld cannot find out, it returns false, because the log itself still refuses the bytes.
func (ex *Execution) logWithheld(ctx context.Context, runner fairlead.RunnerID, h kernel.Holder) bool {
	if ex.LogBudget.PerHour == 0 {
		return false
	}
	if left, err := ex.Log.Spend(ctx, string(runner), 0, ex.LogBudget, ex.Now()); err == nil && !left {
		return true
	}
	_, err := ex.Log.Followed(ctx, joblog.Stream{Job: string(h.Job), Epoch: h.Epoch})
	return errors.Is(err, joblog.ErrCut)
}

// AttemptAccess returns credentials with which the holder writes its attempt's log and
// reads its app's artifacts directly. They depend only on the job's install, so a runner
// that serves many installs gets them as well. If there are no such credentials, the
// error is of KindNotFound, and the step sends the log through the API.
func (ex *Execution) AttemptAccess(ctx context.Context, h kernel.Holder) (identity.Access, error) {
	r, err := ex.Held(ctx, h)
	if err != nil {
		return identity.Access{}, err
	}
	none := &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeNoLogAccess,
		Message: fmt.Sprintf("job %s can write its log only through the API", h.Job)}
	if ex.Access == nil || r.V.Install == "" {
		return identity.Access{}, none
	}
	app, err := catalog.AppOfInstall(ex.Reading(ctx), r.V.Org, r.V.InstallName, r.V.Install)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := ex.Access.Grant(ctx, identity.Scope{Runner: r.V.Runner, Install: r.V.Install, App: app, Job: h.Job, Epoch: h.Epoch, NoLog: ex.logWithheld(ctx, r.V.Runner, h)})
	if err != nil {
		return a, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeLogAccessUnavailable, Message: "cannot get access to the log now", Hint: "Write the log through the API, or ask again.", Err: err}
	}
	return a, nil
}
