// Package job is the life of a job: its states, the events that move it, the
// lease that says who may speak for it, and the schedule of its retries. It is
// pure: time comes in with each event and nothing is read or written.
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

// State is where a job is in its life.
type State string

// The states of a job.
const (
	// Queued: committed, and waiting for an agent of its runner. A crash
	// leaves it queued; the sweep sends its wake-up again.
	Queued State = "queued"
	// Claimed: leased to an agent, which is launching a step. No tool has run.
	Claimed State = "claimed"
	// Running: the step has fetched the spec and renews the lease. A crash may
	// leave a tool at work, so what follows depends on what the tool does.
	Running State = "running"
	// Canceling: somebody asked the running step to stop and it has not yet.
	Canceling State = "canceling"
	// Succeeded: the step reported success. Final.
	Succeeded State = "succeeded"
	// Failed: the step reported a failure, or the job was given up. Final.
	Failed State = "failed"
	// Canceled: it was canceled before it began, or the step stopped. Final.
	Canceled State = "canceled"
	// Lost: the step vanished while its tool may have been changing something.
	// Nobody knows what it did. Final: what runs next is a plan, never this
	// job again.
	Lost State = "lost"
)

// States lists every state in the order of a job's life.
func States() []State {
	return []State{Queued, Claimed, Running, Canceling, Succeeded, Failed, Canceled, Lost}
}

// Final reports whether no event moves a job out of s.
func (s State) Final() bool {
	return s == Succeeded || s == Failed || s == Canceled || s == Lost
}

// Leased reports whether a session holds a job in s.
func (s State) Leased() bool { return s == Claimed || s == Running || s == Canceling }

// Operation is what a job does.
type Operation string

// The operations.
const (
	OpPlan        Operation = "plan"         // compute and save what an apply would change
	OpApply       Operation = "apply"        // carry out exactly a saved plan
	OpPlanDestroy Operation = "plan-destroy" // compute and save what a destroy would remove
	OpDestroy     Operation = "destroy"      // carry out exactly a saved plan of removal
	OpCheck       Operation = "check"        // do nothing, and prove the way through a runner
	OpAgentLog    Operation = "agent-log"    // send what the runner's agent has said of late

	// OpMigrateState copies the states of an install to another storage, and
	// changes neither them nor the customer's account. What is there already is
	// not copied again, so it is repeated as a plan is.
	OpMigrateState Operation = "migrate-state"
)

// Operations lists every operation.
func Operations() []Operation {
	return []Operation{OpPlan, OpApply, OpPlanDestroy, OpDestroy, OpCheck, OpAgentLog, OpMigrateState}
}

// Mutates reports whether the operation changes the customer's account. A
// mutating job that is interrupted is never repeated blindly.
func (o Operation) Mutates() bool { return o == OpApply || o == OpDestroy }

// OfRunner reports whether the operation is of a runner, and of no install.
func (o Operation) OfRunner() bool { return o == OpCheck || o == OpAgentLog }

// Plans reports whether the operation saves a plan.
func (o Operation) Plans() bool { return o == OpPlan || o == OpPlanDestroy }

// Lease says who may speak for a job. The epoch rises with each claim and
// never falls; whoever speaks with another epoch is stale.
type Lease struct {
	Epoch   int64              `json:"epoch"`             // 0: never claimed
	Session fairlead.SessionID `json:"session,omitempty"` // the agent's
	Step    string             `json:"step,omitempty"`    // the step process that traded the launch token
	Expires time.Time          `json:"expires,omitzero"`
}

// Job is one operation on one component, run by a runner.
type Job struct {
	ID         fairlead.JobID        `json:"id"`
	Org        fairlead.OrgID        `json:"org"`
	Runner     fairlead.RunnerID     `json:"runner"`
	Install    fairlead.InstallID    `json:"install,omitempty"`
	Deployment fairlead.DeploymentID `json:"deployment,omitempty"`
	Component  string                `json:"component,omitempty"`
	Operation  Operation             `json:"operation"`
	Plugin     string                `json:"plugin"`

	Terms Terms `json:"terms,omitzero"` // as they were when it was made

	State     State           `json:"state"`
	Lease     Lease           `json:"lease"`
	Attempts  int             `json:"attempts"`            // claims that were not given back
	NotBefore time.Time       `json:"not_before,omitzero"` // of a retry
	Stop      fairlead.Reason `json:"stop,omitempty"`      // why it is canceling
	StopAsked time.Time       `json:"stop_asked,omitzero"` // since when
	StopBy    fairlead.Actor  `json:"stop_by,omitzero"`    // who canceled it; zero: nobody
	Reason    fairlead.Reason `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"`
	ExitCode  *int            `json:"exit_code,omitempty"`
	Salvaged  *Salvaged       `json:"salvaged,omitempty"`  // nil: nothing is known to be kept
	DiskFull  bool            `json:"disk_full,omitempty"` // a disk of the runner had no space left
	Deaths    []Death         `json:"deaths,omitempty"`    // attempts whose step vanished, oldest first; MaxAttempts at most

	Created  time.Time `json:"created"`
	Requeued time.Time `json:"requeued,omitzero"` // when it was queued again; zero: only once, when it was made
	Claimed  time.Time `json:"claimed,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
}

// Death is an attempt that ended without a report: what a person needs to know
// of each, after a later one has taken the job's own fields.
type Death struct {
	Epoch    int64              `json:"epoch"`
	Session  fairlead.SessionID `json:"session,omitempty"` // the agent's
	Started  time.Time          `json:"started,omitzero"`  // zero: the step was claimed, and never heard of
	LastSeen time.Time          `json:"heard,omitzero"`    // when the agent or the step was last seen; zero: not known
	At       time.Time          `json:"at"`                // when it was noticed
	Reason   fairlead.Reason    `json:"reason"`
	Message  string             `json:"message,omitempty"` // maxDeath bytes at most
	ExitCode *int               `json:"exit_code,omitempty"`
	DiskFull bool               `json:"disk_full,omitempty"`
}

// Salvaged is what a runner keeps of a state that the job's tool could not save.
// Jobs that ended before runners reported it have none, whatever was kept.
type Salvaged struct {
	Path  string `json:"path"`  // of the file, below the runner's data folder
	Whole bool   `json:"whole"` // the file is one JSON value; else a part of the state is missing
}

// maxDeath is how much of a death's message is kept beside the job's own.
const maxDeath = 400

// Durations and counts of a job's life.
const (
	// StartTimeout is how long a claimed job may take to start. Launching a
	// process takes milliseconds, a container seconds.
	StartTimeout = 20 * time.Second
	// LeaseTTL is how long a lease holds without a renewal: three missed ones.
	LeaseTTL = 45 * time.Second
	// QueueTimeout is how long after it was made a job may still wait for a
	// runner; claims that are given back do not prolong it.
	QueueTimeout = 24 * time.Hour
	// MaxAttempts is how many claims a job that may be repeated gets before it
	// is taken for poison.
	MaxAttempts = 3
	// Grace is how long an interrupted tool may take to save its state.
	Grace = 2 * time.Minute
	// NoOutput is how long a tool may say nothing before it is taken to hang.
	// OpenTofu says every 10 s which resources it still waits for.
	NoOutput = 10 * time.Minute
)

// Terms are the durations of a job's life that an operator may choose. A zero
// field stands for the constant of the same name.
type Terms struct {
	StartTimeout time.Duration `json:"start_ttl,omitempty"`
	LeaseTTL     time.Duration `json:"lease_ttl,omitempty"`
	Grace        time.Duration `json:"grace,omitempty"`
	NoOutput     time.Duration `json:"no_output,omitempty"`
	Timeout      time.Duration `json:"timeout,omitempty"` // of a plan, apply or destroy; zero: that of the operation
}

// OrDefault returns the terms with no field zero but Timeout, which is the
// operation's.
func (t Terms) OrDefault() Terms {
	return Terms{StartTimeout: cmp.Or(t.StartTimeout, StartTimeout), LeaseTTL: cmp.Or(t.LeaseTTL, LeaseTTL), Grace: cmp.Or(t.Grace, Grace),
		NoOutput: cmp.Or(t.NoOutput, NoOutput), Timeout: t.Timeout}
}

// RenewEvery returns how often a step renews its lease: three times while it
// holds, and at least every second.
func (t Terms) RenewEvery() time.Duration {
	return max(t.OrDefault().LeaseTTL/3, time.Second)
}

// StopTTL returns how long a step that was asked to stop may go on renewing
// its lease: the interrupt, the kill, and the report of what is left. A step
// that is still there then is taken for gone.
func (t Terms) StopTTL() time.Duration { return 2 * t.OrDefault().Grace }

// Timeout returns how long the job may run. The step enforces it; the control
// plane does so Grace later, should the step not.
func (j Job) Timeout() time.Duration {
	if j.Terms.Timeout > 0 && (j.Operation.Plans() || j.Operation.Mutates()) {
		return j.Terms.Timeout
	}
	return j.Operation.Timeout()
}

// NoOutputFor returns the event of a running job whose tool has written nothing
// for d: TimeOut if its terms do not allow that, or nothing. The step reports d
// when it renews the lease, so it is noticed a renewal later at most.
func (j Job) NoOutputFor(d time.Duration) (Event, bool) {
	limit := j.Terms.OrDefault().NoOutput
	if j.State != Running || j.Operation.OfRunner() || d < limit {
		return Event{}, false
	}
	return Event{Kind: TimeOut, Reason: fairlead.ReasonNoOutput, Message: fmt.Sprintf("its tool has said nothing for %s and may hang", limit)}, true
}

// Timeout returns how long a job of this operation may run where nobody has
// said otherwise.
func (o Operation) Timeout() time.Duration {
	switch {
	case o.Mutates():
		return 2 * time.Hour
	case o.OfRunner():
		return time.Minute
	}
	return 30 * time.Minute
}

// Backoff returns how long a job waits before it is claimed again after the
// given number of attempts (≥ 1): 1 s, 4 s, 16 s, then a minute.
func Backoff(attempts int) time.Duration {
	d := time.Second
	for range min(attempts-1, 3) {
		d *= 4
	}
	return min(d, time.Minute)
}

// MaxOutputs bounds the outputs of a component, in bytes: names and JSON values.
const MaxOutputs = 16 << 20

// New returns a job that is queued at the given time. The caller fills in
// what it is about.
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

// Due returns when the sweep must look at the job next, or the zero time for
// never: a queued job may have lost its wake-up, a leased one its step, and a
// running one may be over its time although its step renews the lease.
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

// Overdue returns what the passing of time did to the job by at, for the sweep
// to apply: Expire, TimeOut, or nothing. A queued job that is due and not
// overdue wants its wake-up again.
func (j Job) Overdue(at time.Time) (Event, bool) {
	switch {
	case j.State == Queued && !at.Before(j.Created.Add(QueueTimeout)):
		return Event{Kind: TimeOut, At: at}, true
	case j.State.Leased() && !at.Before(j.Lease.Expires):
		return Event{Kind: Expire, At: at, Epoch: j.Lease.Epoch}, true
	case j.State == Running && !at.Before(j.deadline()):
		return Event{Kind: TimeOut, At: at}, true
	}
	return Event{}, false
}

// deadline is when the control plane stops a running job whose step should
// have done so Grace before.
func (j Job) deadline() time.Time {
	return j.Started.Add(j.Timeout() + j.Terms.OrDefault().Grace)
}

// StuckAfter is how long a job may wait for a runner to take it before it
// counts as stuck. Every other wait of a job ends by its lease.
const StuckAfter = 10 * time.Minute

// WaitsSince is since when a queued job waits for a runner to take it.
func (j Job) WaitsSince() time.Time {
	if at := j.QueuedAt(); !j.NotBefore.After(at) {
		return at
	}
	return j.NotBefore
}

// ResendAfter is how long a job waits in the queue before the sweep sends its
// wake-up again.
const ResendAfter = 30 * time.Second

// StaleError says that somebody spoke for a job with a lease that is not, or
// no longer, theirs. Whoever hears it stops working at once.
type StaleError struct {
	Job   fairlead.JobID
	State State
	Epoch int64 // of the job now
	Given int64
}

func (e *StaleError) Error() string {
	switch {
	case e.Epoch == e.Given && e.State.Leased():
		return fmt.Sprintf("job %s is %s: its lease is another step's", e.Job, e.State)
	case e.Epoch == e.Given:
		return fmt.Sprintf("job %s is %s: its lease is over", e.Job, e.State)
	}
	return fmt.Sprintf("epoch %d of job %s is stale: it is %s at epoch %d", e.Given, e.Job, e.State, e.Epoch)
}

// TransitionError says that an event is not possible in a job's state, or not
// yet.
type TransitionError struct {
	Job   fairlead.JobID
	State State
	Event Kind
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("job %s is %s: %s is not possible", e.Job, e.State, e.Event)
}
