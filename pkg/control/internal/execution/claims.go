package execution

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// ErrNoWork is returned when no job of the runner was queued while a claim waited. It
// is normal.
var ErrNoWork = errors.New("no work")

// Claim is a job that is leased to a session.
type Claim struct {
	Job
	LaunchToken string              // "": the warm step gets it
	Bindable    bool                // the agent may bind the launch token to an AWS role
	APIOnly     bool                // the step needs no client of a cloud for its log and its state
	WarmStep    fairlead.WarmStepID // the warm step that runs the job; "": none, the agent starts a step
	// Configuration is the revision of the runner's configuration; "": it has none.
	Configuration string
}

// hideClaimed is how long a wake-up is hidden while its job is claimed. If the claim
// fails, another agent receives the wake-up after this time.
const hideClaimed = 30 * time.Second

// Claim leases a queued job of the session's runner to the session. If no job is queued,
// it waits for the duration wait at most, and then returns ErrNoWork. At most one session
// holds a job at a given epoch. Safe for concurrent use.
func (ex *Execution) Claim(ctx context.Context, s runners.Session, wait time.Duration, options ...ClaimOption) (Claim, error) {
	if s.Draining {
		return Claim{}, ErrNoWork // the agent reported that it takes no more jobs
	}
	deadline := ex.Now().Add(wait)
	for {
		// Check before a message is received, so that messages stay in the queue of a
		// runner that takes no jobs.
		_, taking, err := ex.awaitTaking(ctx, s, deadline.Sub(ex.Now()))
		if err != nil {
			return Claim{}, err
		}
		if !taking {
			return Claim{}, ErrNoWork
		}
		msg, err := ex.Queue.Receive(ctx, kernel.QueueName(s.Runner), hideClaimed, min(max(0, deadline.Sub(ex.Now())), queue.MaxWait))
		if errors.Is(err, queue.ErrNoMessage) {
			return Claim{}, ErrNoWork
		}
		if err != nil {
			return Claim{}, fmt.Errorf("claim for runner %s: %w", s.Runner, err)
		}
		w, err := events.DecodeWake(msg.Body)
		if err != nil {
			// The message stays hidden, is received again, and ends among the dead
			// letters.
			ex.Logger.Warn("a message in a runner's queue is not a wake-up", "queue", kernel.QueueName(s.Runner), "message", msg.ID, "error", err)
			continue
		}
		if w.Job == events.WakeForKeys {
			if err := ex.Queue.Delete(context.WithoutCancel(ctx), kernel.QueueName(s.Runner), msg.Receipt); err != nil && !errors.Is(err, queue.ErrReceipt) {
				ex.Logger.Warn("cannot delete a used wake-up for keys", "error", err)
			}
			return Claim{}, ErrNoWork // before the wait is over: the agent sends a heartbeat, whose answer names the installs
		}
		// Check again after the wait: the runner may have been disabled and the session
		// ended meanwhile. The session is checked only when there is a job, because an
		// idle claim harms no one and the check would cost it a read.
		var runner store.RunnerName
		taking = false
		if err = runners.StandsStill(ex.Reading(ctx), s); err == nil {
			runner, taking, err = ex.takes(ctx, s)
		}
		if err != nil {
			if fairlead.KindOf(err) == fairlead.KindUnauthenticated {
				ex.putBack(ctx, s, msg, w) // the runner's other agents can receive it at once
			}
			return Claim{}, err
		}
		var claimed Claim
		if taking {
			claimed, err = ex.claim(ctx, s, w.Job, runner, options)
			taking = !errors.Is(err, errFull)
		}
		if !taking {
			ex.putBack(ctx, s, msg, w)
			continue
		}
		if err != nil && !errors.Is(err, ErrNoWork) {
			return Claim{}, err
		}
		// The wake-up is used up, whether or not a job was claimed. If the deletion
		// fails, the wake-up is received again and finds no job.
		if derr := ex.Queue.Delete(context.WithoutCancel(ctx), kernel.QueueName(s.Runner), msg.Receipt); derr != nil && !errors.Is(derr, queue.ErrReceipt) {
			ex.Logger.Warn("cannot delete a used wake-up", "job", w.Job, "error", derr)
		}
		if err == nil {
			return claimed, nil
		}
	}
}

// putBack makes a received wake-up visible to other agents.
func (ex *Execution) putBack(ctx context.Context, s runners.Session, msg queue.Message, w events.Wake) {
	if err := ex.Queue.Extend(ctx, kernel.QueueName(s.Runner), msg.Receipt, 0); err != nil && !errors.Is(err, queue.ErrReceipt) {
		ex.Logger.Warn("cannot return a wake-up to the queue; it becomes visible again when its hiding time ends", "job", w.Job, "error", err)
	}
}

// awaitTaking waits until the session's runner takes jobs, for the duration wait at most.
func (ex *Execution) awaitTaking(ctx context.Context, s runners.Session, wait time.Duration) (runner store.RunnerName, taking bool, err error) {
	if runner, taking, err = ex.takes(ctx, s); taking || err != nil {
		return runner, taking, err
	}
	err = ex.Wait(ctx, string(s.Runner), wait, func(ctx context.Context) (bool, error) {
		var err error
		runner, taking, err = ex.takes(ctx, s)
		return taking, err
	})
	return runner, taking, err
}

// takes reports whether the session takes jobs: the vendor's mode, the runner's limit and
// the version that its configuration pins must allow it. It also returns the runner's
// record.
func (ex *Execution) takes(ctx context.Context, s runners.Session) (runner store.RunnerName, taking bool, err error) {
	runner, taking, err = ex.runnerTakes(ctx, s.Runner)
	return runner, taking && !runners.Pins(runner, s.Version), err
}

// runnerTakes is takes for the runner's agents of the right version.
func (ex *Execution) runnerTakes(ctx context.Context, id fairlead.RunnerID) (runner store.RunnerName, taking bool, err error) {
	n, err := ex.Store.RunnerName(ctx, id)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return runner, false, identity.NoLonger() // the runner was deleted
	}
	if err != nil || !n.V.Mode.TakesJobs() {
		return n.V, false, err
	}
	if n.V.Limit == 0 {
		return n.V, true, nil
	}
	slots, err := ex.Store.RunnerSlots(ctx, id)
	return n.V, len(slots.V.Jobs) < n.V.Limit, err
}

// errFull is returned when a runner runs as many jobs as its limit allows.
var errFull = errors.New("the runner is at its limit")

// takeSlot assigns one of the runner's slots to the job, in the commit that claims the
// job.
func takeSlot(tx *kernel.Tx, runner fairlead.RunnerID, id fairlead.JobID, limit int) error {
	slots, err := tx.SlotsOf(runner)
	if err != nil {
		return err
	}
	if len(slots.V.Jobs) >= limit {
		return errFull
	}
	slots.V.Jobs = append(slices.Clone(slots.V.Jobs), id)
	tx.PutSlots(slots)
	return nil
}

// freeSlot frees the job's slot, in the commit that ends its lease.
func freeSlot(tx *kernel.Tx, runner fairlead.RunnerID, id fairlead.JobID) error {
	slots, err := tx.SlotsOf(runner)
	if err != nil {
		return err
	}
	slots.V.Jobs = slices.DeleteFunc(slices.Clone(slots.V.Jobs), func(j fairlead.JobID) bool { return j == id })
	if slots.Version > 0 { // otherwise the runner and its slots were deleted
		tx.PutSlots(slots)
	}
	return nil
}

func (ex *Execution) claim(ctx context.Context, s runners.Session, id fairlead.JobID, runner store.RunnerName, options []ClaimOption) (Claim, error) {
	out := Claim{Configuration: runner.Revision}
	// The epoch before this claim, by which a retry recognizes its own earlier commit.
	before := int64(-1)
	err := ex.Transact(ctx, "claim job "+string(id), func(tx *kernel.Tx) error {
		r, err := ex.Store.Job(ctx, id)
		if fairlead.KindOf(err) == fairlead.KindNotFound {
			return ErrNoWork
		}
		if err != nil {
			return err
		}
		if before >= 0 && r.V.State == job.Claimed && r.V.Lease.Session == s.ID && r.V.Lease.Epoch == before+1 {
			out.Job = JobOf(r.V)
			return nil // our own earlier commit, whose outcome was unclear
		}
		if r.V.State != job.Queued || r.V.Runner != s.Runner || r.V.NotBefore.After(tx.Now) || r.V.TooLate(tx.Now) {
			return ErrNoWork
		}
		before = r.V.Lease.Epoch
		if runner.Limit > 0 {
			if err := takeSlot(tx, r.V.Runner, id, runner.Limit); err != nil {
				return err
			}
			r.V.Slot = true
		}
		if r, err = applyJob(tx, r, job.Event{Kind: job.Claim, Session: s.ID}); err != nil {
			return err
		}
		out.Job = JobOf(r.V)
		if out.WarmStep = ""; slices.Contains(options, IntoWarmStep) {
			if out.WarmStep, err = assignWarm(tx, s, r.V); err != nil {
				return err
			}
		}
		if look := firstLook(tx, r.V); look.Before(r.V.Due()) && r.V.DueAt.After(look) {
			tx.PutJobAt(r, look)
		}
		return nil
	})
	if err != nil {
		return Claim{}, err
	}
	if out.WarmStep == "" {
		out.LaunchToken, out.Bindable = ex.launchToken(id, out.Lease.Epoch), ex.AWS != nil
		out.APIOnly = ex.apiOnly(ctx, out.Job)
	}
	return out, nil
}

// apiOnly reports whether the step of a job needs no client of a cloud for its log and its state. It reports false if this is
// unknown: then the step starts in the runner's whole program.
func (ex *Execution) apiOnly(ctx context.Context, j Job) bool {
	if ex.Access != nil && j.Install != "" || j.Operation == job.OpMigrateState {
		return false
	}
	if t, _ := component.Of(j.Plugin); !t.SavesPlans() || j.Operation.OfRunner() {
		return true
	}
	r, err := ex.Store.Runner(ctx, j.RunnerOrg, j.RunnerName)
	return err == nil && runners.StorageOf(r.V).Kind != string(runnerspec.S3State)
}

// ReleaseJob returns a claimed job that was never started to the queue.
func (ex *Execution) ReleaseJob(ctx context.Context, s runners.Session, id fairlead.JobID, epoch int64) error {
	return ex.Transact(ctx, "release job "+string(id), func(tx *kernel.Tx) error {
		r, err := runnersJob(tx, s, id)
		if err != nil {
			return err
		}
		if r.V.State == job.Queued && r.V.Lease.Epoch == epoch {
			return nil // released already
		}
		_, err = applyJob(tx, r, job.Event{Kind: job.Release, Epoch: epoch})
		return err
	})
}

// runnersJob returns a job of the session's runner. For a job of another runner it
// returns the same error as for a missing job.
func runnersJob(tx *kernel.Tx, s runners.Session, id fairlead.JobID) (store.Stored[store.Job], error) {
	r, err := tx.Store.Job(tx.Ctx, id)
	if err == nil && r.V.Runner != s.Runner {
		return store.Stored[store.Job]{}, fairlead.NotFound(fairlead.CodeJobNotFound, string(id))
	}
	return r, err
}

// Death is an agent's report of a step that ended without a report of its own.
type Death struct {
	Epoch    int64
	ExitCode *int
	Signal   string
	Cause    fairlead.Cause
	Message  string
	Salvaged *job.Salvaged // nil: the runner keeps no unsaved state
	DiskFull bool          // a disk of the runner was full
	Log      *WholeLog     // nil: bytes may be missing
}

// WholeLog describes a complete log, from the knowledge of its writer.
type WholeLog struct {
	Size  int64
	CRC32 uint32 // IEEE
}

// ReportDeath records that the step of a job, and all processes that it started, ended.
func (ex *Execution) ReportDeath(ctx context.Context, s runners.Session, id fairlead.JobID, d Death) error {
	if !slices.Contains(fairlead.Causes(), d.Cause) { // only known causes: a person acts on the text that is derived from it
		return fairlead.Invalid(fairlead.CodeInvalidReason, "%q is not a death reason", d.Cause)
	}
	message := diagnosis.Death(d.Cause, d.ExitCode, d.Signal, fairlead.Clip(strings.TrimSpace(d.Message), 2000))
	return ex.Transact(ctx, "report death of job "+string(id), func(tx *kernel.Tx) error {
		tx.ByRunner = "report-died"
		r, err := runnersJob(tx, s, id)
		if err != nil {
			return err
		}
		r, err = applyDeath(tx, r, job.Event{Kind: job.Die, Epoch: d.Epoch, Reason: d.Cause.Reason(), Message: message, ExitCode: d.ExitCode, Salvaged: d.Salvaged, DiskFull: d.DiskFull}, (*store.WholeLog)(d.Log))
		if err != nil {
			return err
		}
		return advanceDeployment(tx, r.V)
	})
}

// ProveRole verifies that a step has the AWS role that its launch token or warm token is bound to. It verifies nothing for a
// token that is bound to no role. statement is what the proof signs besides the token: it names the step, so that a proof
// serves one step only. p is nil if the request has no proof. The error is of KindUnauthenticated, or of KindUnavailable if STS
// cannot be reached.
func (ex *Execution) ProveRole(ctx context.Context, b kernel.Binding, statement []byte, p *runners.AWSProof) error {
	if b.Role == "" {
		return nil
	}
	if p == nil || p.Audience == "" || ex.AWS == nil {
		return unproven(b, nil)
	}
	role, err := ex.AWS.Verify(ctx, p.Proof, awsiam.Challenge{Nonce: b.Nonce, Audience: p.Audience, Statement: statement})
	if err != nil {
		return unproven(b, err)
	}
	now := ex.Now()
	want, err := awsiam.ParseTrust(b.Role, "", now.Add(time.Minute))
	if err == nil {
		_, err = want.Match(role, now)
	}
	if err != nil {
		return unproven(b, err)
	}
	return nil
}

// unproven refuses a request whose proof of the token's role is wrong for the reason why, or missing if why is nil. It
// returns why unchanged if STS could not be asked.
func unproven(b kernel.Binding, why error) error {
	out := &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeStepRoleUnproven,
		Message: fmt.Sprintf("the token is for a step with the role %s, and the request proves no role", b.Role),
		Hint:    "If the image of the runner's steps is older than its agent, use the same release for both."}
	if why == nil {
		return out
	}
	e, ok := errors.AsType[*fairlead.Error](why)
	if !ok || e.Kind == fairlead.KindUnavailable {
		return why
	}
	out.Message, out.Details, out.Err = fmt.Sprintf("the token is for a step with the role %s: %s", b.Role, e.Message), e.Details, why
	return out
}

// Started is the answer to a start of a job.
type Started struct {
	Envelope   []byte
	LeaseToken string
	StateToken string        // for the tool: it reads, locks and writes the state of the job's component, and nothing else
	RenewEvery time.Duration // how often to renew the lease
	KeySets    [][]byte      // the envelopes of the key sets, for a step that follows them
}

// StartJob exchanges a launch token, which names job and epoch, for the signed spec.
// The same step may repeat the request; another step is refused. fields lists optional
// fields of a spec that the step understands. If no spec can be built, the job ends,
// and the error has the detail DetailEnded and the job's reason as its code.
func (ex *Execution) StartJob(ctx context.Context, id fairlead.JobID, epoch int64, step string, fields ...string) (Started, error) {
	// Opening the epoch fences the logs of all earlier attempts. The log is opened
	// before the job starts, so that a reader who sees the start also finds the log. A
	// refused start leaves only an empty stream.
	if err := ex.Log.Open(ctx, joblog.Stream{Job: string(id), Epoch: epoch}); err != nil && !errors.Is(err, joblog.ErrFenced) {
		return Started{}, fmt.Errorf("open log of job %s: %w", id, err)
	}
	var r store.Stored[store.Job]
	err := ex.Transact(ctx, "start job "+string(id), func(tx *kernel.Tx) error {
		var err error
		if r, err = ex.Store.Job(ctx, id); err != nil {
			return err
		}
		if r.V.State.Leased() && r.V.Lease.Epoch == epoch && r.V.Lease.Step == step {
			return nil // the step lost the first answer; the lease is unchanged
		}
		if r.V.State.Leased() && r.V.Lease.Epoch == epoch && r.V.Lease.Step != "" {
			return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeLaunchTokenUsed,
				Message: fmt.Sprintf("the launch token of job %s was used by another step", id)}
		}
		r, err = applyJob(tx, r, job.Event{Kind: job.Start, Epoch: epoch, Step: step})
		return err
	})
	if err != nil {
		return Started{}, err
	}
	lease := ex.Minter.Mint(identity.Claims{Purpose: identity.Lease, Subject: string(id), Epoch: epoch})
	made, err := spec(ex.Reading(ctx), r.V, lease, fields)
	if err != nil {
		return Started{}, ex.endUnstarted(ctx, kernel.Holder{Job: id, Epoch: epoch}, err)
	}
	signing, err := ex.Signing(ctx) // once, since the keys can change: the signature and the key sets must fit
	if err != nil {
		return Started{}, err
	}
	env, chain, err := signing.Sign(ctx, made, fields)
	if err != nil {
		return Started{}, err
	}
	return Started{Envelope: env, KeySets: chain, RenewEvery: r.V.Terms.RenewEvery(), LeaseToken: lease,
		StateToken: ex.Minter.Mint(identity.Claims{Purpose: identity.State, Subject: string(id), Epoch: epoch})}, nil
}

// DetailEnded is a detail of StartJob's errors: "true" if the job has ended with the
// error's code as its reason. Steps know it as wire.DetailJobEnded.
const DetailEnded = "job_ended"

// endUnstarted ends a job for which no spec can be built, and returns the reason. The
// step cannot report the end itself, because it has no lease yet. If a retry may
// succeed, the job is left as it is.
func (ex *Execution) endUnstarted(ctx context.Context, h kernel.Holder, why error) error {
	e, ok := errors.AsType[*fairlead.Error](why)
	if !ok {
		return why
	}
	switch e.Kind {
	case fairlead.KindConflict, fairlead.KindInvalid, fairlead.KindNotFound:
	default:
		return why
	}
	if err := ex.FinishJob(ctx, h, Report{Outcome: OutcomeFailed, Reason: e.Code.Reason(), Message: e.Message + ". Nothing was started."}); err != nil {
		return err
	}
	out := *e
	out.Err, out.Details = why, maps.Clone(e.Details)
	if out.Details == nil {
		out.Details = map[string]string{}
	}
	out.Details[DetailEnded] = "true"
	return &out
}

// DetailPinned is a detail of ClaimJob's error runner-not-taking: the version that the
// runner's configuration pins, if the agent runs another one. The code stays the same,
// because an older agent must understand it. Agents know the detail as
// wire.DetailPinnedVersion.
const DetailPinned = "pinned_version"

// ClaimJob is like Claim, but for an agent that received the wake-up of a job itself. It
// does not wait. If the runner takes no jobs, ClaimJob returns an error, so that the
// agent stops reading its queue. For agents that use the API, Claim stops reading the
// queue.
func (ex *Execution) ClaimJob(ctx context.Context, s runners.Session, id fairlead.JobID, options ...ClaimOption) (Claim, error) {
	if s.Draining {
		return Claim{}, ErrNoWork
	}
	notTaking := fairlead.Conflict(fairlead.CodeRunnerNotTaking, "runner %s takes no jobs now: it is disabled, draining, paused, or at its limit", s.Runner)
	runner, taking, err := ex.takes(ctx, s)
	if err != nil {
		return Claim{}, err
	}
	if !taking {
		if runners.Pins(runner, s.Version) {
			notTaking.Message = fmt.Sprintf("runner %s pins version %s, and this agent runs %s: it gets no jobs", runner.Name, runner.Version, s.Version)
			notTaking.Details = map[string]string{DetailPinned: runner.Version}
		}
		return Claim{}, notTaking
	}
	claimed, err := ex.claim(ctx, s, id, runner, options)
	if errors.Is(err, errFull) {
		err = notTaking
	}
	return claimed, err
}
