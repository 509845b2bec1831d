// Package job implements the state machine of a job: its states, events, lease
// and retry schedule. It is pure: each event carries its time, and the package
// does no I/O.
//
// One table holds every transition (transitions.go). A test of package deployment
// writes docs/reference/states.md from it.
package job

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// State is the state of a job.
type State string

// The states of a job.
const (
	// Queued: committed, and waiting for an agent of its runner. If a crash
	// loses its wake-up, the sweep sends another.
	Queued State = "queued"
	// Claimed: leased to an agent, which starts a step. No tool has run.
	Claimed State = "claimed"
	// Running: the step has fetched the spec and renews the lease. After a crash
	// the tool may still run, so the next state depends on the operation.
	Running State = "running"
	// Canceling: the running step was asked to stop and still runs.
	Canceling State = "canceling"
	// Succeeded: the step reported success. Final.
	Succeeded State = "succeeded"
	// Failed: the step reported a failure, or the control plane gave the job up. Final.
	Failed State = "failed"
	// Canceled: the job was canceled before it started, or its step stopped. Final.
	Canceled State = "canceled"
	// Lost: the step ended without a report, and its tool may have made changes. The
	// job's outcome is unknown. Final: the job is never repeated, a plan runs next.
	Lost State = "lost"
)

// States returns all states: first Queued, last the final states.
func States() []State {
	return []State{Queued, Claimed, Running, Canceling, Succeeded, Failed, Canceled, Lost}
}

// Final reports whether a job in s never changes its state again.
func (s State) Final() bool {
	return s == Succeeded || s == Failed || s == Canceled || s == Lost
}

// Leased reports whether a session holds a job in s.
func (s State) Leased() bool { return s == Claimed || s == Running || s == Canceling }

// Operation is what a job does.
type Operation string

// The operations.
const (
	OpPlan        Operation = "plan"         // compute and save the changes of an apply
	OpApply       Operation = "apply"        // execute exactly one saved plan
	OpPlanDestroy Operation = "plan-destroy" // compute and save the removals of a destroy
	OpDestroy     Operation = "destroy"      // execute exactly one saved plan of removals
	OpPlanRun     Operation = "plan-run"     // compute and save what a run of an app's action would start
	OpRun         Operation = "run"          // run an app's action: execute exactly one saved plan of a run
	OpCheck       Operation = "check"        // do nothing; its success shows that the runner can run jobs
	OpAgentLog    Operation = "agent-log"    // send the recent log of the runner's agent

	// OpBuild makes the artifact of a component. The same sources have the same
	// artifact, so it can be repeated.
	OpBuild Operation = "build"

	// OpMigrateState copies the states of an install to another storage. It does
	// not change the states or the customer's account. It skips states that are
	// copied already, so it can be repeated like a plan.
	OpMigrateState Operation = "migrate-state"
)

// Operations returns all operations.
func Operations() []Operation {
	return []Operation{OpPlan, OpApply, OpPlanDestroy, OpDestroy, OpPlanRun, OpRun, OpCheck, OpAgentLog, OpBuild, OpMigrateState}
}

// Mutates reports whether the operation changes the customer's account. An
// interrupted mutating job is never repeated without a new plan.
func (o Operation) Mutates() bool { return o == OpApply || o == OpDestroy || o == OpRun }

// OfAction reports whether the operation concerns an app's action and not a
// component. It changes no record of a component.
func (o Operation) OfAction() bool { return o == OpPlanRun || o == OpRun }

// OfRunner reports whether the operation concerns a runner and not an install.
func (o Operation) OfRunner() bool { return o == OpCheck || o == OpAgentLog || o == OpBuild }

// Plans reports whether the operation saves a plan.
func (o Operation) Plans() bool { return o == OpPlan || o == OpPlanDestroy || o == OpPlanRun }

// Mutation returns the operation that executes a plan of the operation. An operation that plans nothing is its own.
func (o Operation) Mutation() Operation {
	switch o {
	case OpPlan:
		return OpApply
	case OpPlanDestroy:
		return OpDestroy
	case OpPlanRun:
		return OpRun
	}
	return o
}

// Lease names the session and the step that may report for a job until the lease
// expires. Each claim raises the epoch by one. Requests with another epoch are
// refused.
type Lease struct {
	Epoch   int64              `json:"epoch"`             // 0: never claimed
	Session fairlead.SessionID `json:"session,omitempty"` // the agent's
	Step    string             `json:"step,omitempty"`    // the step that used the launch token
	Expires time.Time          `json:"expires,omitzero"`
}

// Job is one operation on one component, run by a runner.
type Job struct {
	ID         fairlead.JobID        `json:"id"`
	Org        fairlead.OrgID        `json:"org"`
	Runner     fairlead.RunnerID     `json:"runner"`
	Install    fairlead.InstallID    `json:"install,omitempty"`
	Deployment fairlead.DeploymentID `json:"deployment,omitempty"`
	Component  string                `json:"component,omitempty"` // or an app's action, as in a deployment's node
	Operation  Operation             `json:"operation"`
	Plugin     string                `json:"plugin"`
	Role       string                `json:"role,omitempty"` // role of package component that an action declares for its runs, or a component for its applies; empty: that of the operation

	Terms Terms `json:"terms,omitzero"` // fixed when the job is created
	Size  Size  `json:"size,omitzero"`  // fixed when the job is created; zero: the size that the runner is configured for
	// Image is the image in which the step runs, by digest. It is fixed when the job is created. "": that of the runner.
	Image string `json:"image,omitempty"`

	State     State           `json:"state"`
	Lease     Lease           `json:"lease"`
	Attempts  int             `json:"attempts"`            // number of claims, without released claims
	NotBefore time.Time       `json:"not_before,omitzero"` // the earliest time of the next claim
	NotAfter  time.Time       `json:"not_after,omitzero"`  // when the plan of a mutating job expires: no agent claims the job from then on; zero: never
	Stop      fairlead.Reason `json:"stop,omitempty"`      // why the job was asked to stop
	StopAsked time.Time       `json:"stop_asked,omitzero"` // when the job was asked to stop
	StopBy    fairlead.Actor  `json:"stop_by,omitzero"`    // who canceled the job; zero: no person
	Reason    fairlead.Reason `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"`
	ExitCode  *int            `json:"exit_code,omitempty"`
	Salvaged  *Salvaged       `json:"salvaged,omitempty"`  // nil: the runner reported no saved state
	DiskFull  bool            `json:"disk_full,omitempty"` // a disk of the runner had no space left
	Deaths    []Death         `json:"deaths,omitempty"`    // attempts that ended without a report, oldest first; at most MaxAttempts

	Created  time.Time `json:"created"`
	Requeued time.Time `json:"requeued,omitzero"` // when the job was last returned to the queue; zero: never
	Claimed  time.Time `json:"claimed,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
}

// Size is the CPU and memory that a component asks for its jobs. Both are set, or neither.
type Size struct {
	CPU    int64 `json:"cpu"`    // thousandths of one CPU
	Memory int64 `json:"memory"` // bytes
}

// Death describes an attempt that ended without a report. Each attempt has its
// own record, because a later attempt overwrites the fields of the job.
type Death struct {
	Epoch    int64              `json:"epoch"`
	Session  fairlead.SessionID `json:"session,omitempty"` // the agent's
	Started  time.Time          `json:"started,omitzero"`  // zero: the job was claimed, but the step never reported
	LastSeen time.Time          `json:"heard,omitzero"`    // when the agent or the step was last seen; zero: unknown. The JSON key stays "heard", because stored jobs have it
	At       time.Time          `json:"at"`                // when the control plane noticed the end
	Reason   fairlead.Reason    `json:"reason"`
	Message  string             `json:"message,omitempty"` // at most maxDeath bytes
	ExitCode *int               `json:"exit_code,omitempty"`
	DiskFull bool               `json:"disk_full,omitempty"`
}

// Salvaged describes the state file that a runner keeps because the job's tool
// could not save its state. Old releases of runners did not report this file, so
// their jobs have no Salvaged even if the runner keeps a file.
type Salvaged struct {
	Path  string `json:"path"`  // of the file, relative to the runner's data folder
	Whole bool   `json:"whole"` // the file is one JSON value; false: a part of the state is missing
}

// maxDeath is the maximum length of a Death's message, in bytes.
const maxDeath = 400

// Durations and counts of a job's life.
const (
	// StartTimeout is the longest time from the claim to the step's first report.
	// A process starts in milliseconds, a container in seconds.
	StartTimeout = 20 * time.Second
	// LeaseTTL is how long a lease lasts without a renewal: three missed renewals.
	LeaseTTL = 45 * time.Second
	// QueueTimeout is how long a job may wait for a runner, counted from its
	// creation. Released claims do not extend it.
	QueueTimeout = 24 * time.Hour
	// MaxAttempts is how many attempts a repeatable job has. If the last attempt ends
	// without a report too, the job fails with the reason poison or start-timeout.
	MaxAttempts = 3
	// Grace is how long an interrupted tool may take to save its state.
	Grace = 2 * time.Minute
	// NoOutput is the no-output timeout. A tool that writes no log line for this long
	// is treated as hanging. A working OpenTofu writes a line at least every 10 s,
	// about the resources that it waits for.
	NoOutput = 10 * time.Minute
)

// Terms are the durations of a job that an operator can set. A zero field means
// the constant of the same name.
type Terms struct {
	StartTimeout time.Duration `json:"start_ttl,omitempty"`
	LeaseTTL     time.Duration `json:"lease_ttl,omitempty"`
	Grace        time.Duration `json:"grace,omitempty"`
	NoOutput     time.Duration `json:"no_output,omitempty"`
	Timeout      time.Duration `json:"timeout,omitempty"` // of a plan, apply or destroy; zero: the timeout of the operation
}

// OrDefault returns the terms with defaults in all zero fields except Timeout,
// whose default depends on the operation.
func (t Terms) OrDefault() Terms {
	return Terms{StartTimeout: cmp.Or(t.StartTimeout, StartTimeout), LeaseTTL: cmp.Or(t.LeaseTTL, LeaseTTL), Grace: cmp.Or(t.Grace, Grace),
		NoOutput: cmp.Or(t.NoOutput, NoOutput), Timeout: t.Timeout}
}

// RenewEvery returns the interval at which a step renews its lease: a third of
// the lease TTL, at least one second.
func (t Terms) RenewEvery() time.Duration {
	return max(t.OrDefault().LeaseTTL/3, time.Second)
}

// StopTTL returns how long a step may renew its lease after it was asked to
// stop. The interrupt, the kill and the last report take place in this time.
// Afterwards the lease expires even if the step still runs.
func (t Terms) StopTTL() time.Duration { return 2 * t.OrDefault().Grace }

// Timeout returns how long the job may run. The step enforces the timeout. If the
// step does not, the control plane enforces it after Grace has passed too.
func (j Job) Timeout() time.Duration {
	if j.Terms.Timeout > 0 && (j.Operation.Plans() || j.Operation.Mutates()) {
		return j.Terms.Timeout
	}
	return j.Operation.Timeout()
}

// NoOutputFor returns a TimeOut event and true if the job is running and its tool
// has written no output for the no-output timeout; otherwise it returns false. The
// step reports d, the time since the last output, with each renewal of the lease. So
// a hanging tool is noticed at most one renewal late.
func (j Job) NoOutputFor(d time.Duration) (Event, bool) {
	limit := j.Terms.OrDefault().NoOutput
	if j.State != Running || j.Operation.OfRunner() && j.Operation != OpBuild || d < limit {
		return Event{}, false
	}
	return Event{Kind: TimeOut, Reason: fairlead.ReasonNoOutput, Message: fmt.Sprintf("its tool wrote no output for %s and may hang", limit)}, true
}

// Timeout returns the default for how long a job of this operation may run.
func (o Operation) Timeout() time.Duration {
	switch {
	case o.Mutates():
		return 2 * time.Hour
	case o == OpCheck || o == OpAgentLog:
		return time.Minute
	}
	return 30 * time.Minute
}

// Backoff returns the pause before the next claim, after the given number of
// attempts (≥ 1): 1 s, 4 s, 16 s, then one minute.
func Backoff(attempts int) time.Duration {
	d := time.Second
	for range min(attempts-1, 3) {
		d *= 4
	}
	return min(d, time.Minute)
}

// MaxOutputs is the maximum size of a component's outputs, in bytes: names and JSON values.
const MaxOutputs = 16 << 20

// New returns a job that is queued at the given time. The caller sets the
// remaining fields, such as the org, the runner and the component.
func New(id fairlead.JobID, op Operation, at time.Time) Job {
	return Job{ID: id, Operation: op, State: Queued, Created: at}
}

// QueuedAt returns when the job was queued last.
func (j Job) QueuedAt() time.Time {
	if j.Requeued.IsZero() {
		return j.Created
	}
	return j.Requeued
}

// Due returns when the sweep must check the job next. The zero time means never. The
// wake-up of a queued job may be lost. The step of a leased job may have ended
// without a report. A running job may have passed its timeout although its step
// renews the lease.
func (j Job) Due() time.Time {
	switch {
	case j.State == Queued:
		return j.WaitsSince().Add(ResendAfter)
	case j.State == Running:
		if end := j.deadline(); end.Before(j.Lease.Expires) {
			return end
		}
		return j.Lease.Expires
	case j.State.Leased():
		return j.Lease.Expires
	}
	return time.Time{}
}

// Overdue returns true if a limit of the job has passed at the given time, with the
// event that the sweep must apply: Expire or TimeOut. It returns false if no limit
// has passed. A queued job that is due but not overdue needs another wake-up.
func (j Job) Overdue(at time.Time) (Event, bool) {
	switch {
	case j.State == Queued && j.TooLate(at):
		return Event{Kind: TimeOut, At: at, Reason: fairlead.ReasonPlanExpired}, true
	case j.State == Queued && !at.Before(j.Created.Add(QueueTimeout)):
		return Event{Kind: TimeOut, At: at}, true
	case j.State.Leased() && !at.Before(j.Lease.Expires):
		return Event{Kind: Expire, At: at, Epoch: j.Lease.Epoch}, true
	case j.State == Running && !at.Before(j.deadline()):
		return Event{Kind: TimeOut, At: at}, true
	}
	return Event{}, false
}

// TooLate reports whether the job may no longer be claimed at the given time, because its plan expired.
func (j Job) TooLate(at time.Time) bool { return !j.NotAfter.IsZero() && !at.Before(j.NotAfter) }

// deadline returns when the control plane stops a running job. The step should have
// stopped the job already, at a time that is Grace earlier.
func (j Job) deadline() time.Time {
	return j.Started.Add(j.Timeout() + j.Terms.OrDefault().Grace)
}

// StuckAfter is how long a job may wait for a claim before it counts as stuck. A
// claimed job needs no such limit, because its lease expires.
const StuckAfter = 10 * time.Minute

// WaitsSince returns the time from which a queued job can be claimed.
func (j Job) WaitsSince() time.Time {
	if at := j.QueuedAt(); !j.NotBefore.After(at) {
		return at
	}
	return j.NotBefore
}

// ResendAfter is how long a job is queued before the sweep sends its wake-up
// again. Then the job also shows that an agent with a free slot is dead. On AWS up to
// 15 s pass until the next sweep, and a dead agent must be shown after 30 s.
const ResendAfter = 15 * time.Second

// StaleError reports an event from a session or step that does not hold the job's
// lease. A step that receives this error must stop at once.
type StaleError struct {
	Job   fairlead.JobID
	State State
	Epoch int64 // the job's epoch
	Given int64 // the event's epoch
}

func (e *StaleError) Error() string {
	switch {
	case e.Epoch == e.Given && e.State.Leased():
		return fmt.Sprintf("job %s is %s: another step holds its lease", e.Job, e.State)
	case e.Epoch == e.Given:
		return fmt.Sprintf("job %s is %s: its lease has ended", e.Job, e.State)
	}
	return fmt.Sprintf("epoch %d of job %s is stale: it is %s at epoch %d", e.Given, e.Job, e.State, e.Epoch)
}

// TransitionError reports an event that the job's state does not allow, or that comes
// too early.
type TransitionError struct {
	Job   fairlead.JobID
	State State
	Event Kind
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("job %s is %s: %s is not possible", e.Job, e.State, e.Event)
}
