package job

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Claim   Kind = "claim"   // an agent takes the job; the epoch rises
	Release Kind = "release" // the agent returns the job to the queue, because it did not start the step
	Start   Kind = "start"   // the step exchanged its launch token for the spec
	Renew   Kind = "renew"   // the step extends the lease
	Cancel  Kind = "cancel"  // a person or the deployment asks the job to stop
	TimeOut Kind = "timeout" // the job waited or ran for too long, or its tool wrote no output for too long
	Succeed Kind = "succeed" // the step reports success
	Fail    Kind = "fail"    // the step reports a failure
	Stopped Kind = "stopped" // the step reports that it stopped on request
	Die     Kind = "die"     // the agent reports that the step and all its processes ended
	Expire  Kind = "expire"  // the lease was not renewed in time
)

// Kinds returns all kinds of events.
func Kinds() []Kind {
	return []Kind{Claim, Release, Start, Renew, Cancel, TimeOut, Succeed, Fail, Stopped, Die, Expire}
}

// Leased reports whether the event must carry the epoch of the job's lease.
func (k Kind) Leased() bool {
	switch k {
	case Release, Start, Renew, Succeed, Fail, Stopped, Die, Expire:
		return true
	}
	return false
}

// Event is an event of a job, with its time.
type Event struct {
	Kind     Kind
	At       time.Time
	Epoch    int64              // set for leased events only
	Session  fairlead.SessionID // for Claim: the agent's session
	Step     string             // for Start: identifies the step, so that its repeated Start is recognized; never empty
	Reason   fairlead.Reason    // for Cancel, TimeOut, Fail, Stopped, Die
	Message  string
	ExitCode *int
	Salvaged *Salvaged      // for Fail, Stopped, Die
	DiskFull bool           // for Fail, Stopped, Die
	By       fairlead.Actor // for Cancel
}

// Guard is a condition on the job that selects one of several transitions for
// the same event.
type Guard string

// The guards. The empty guard always holds.
const (
	Always   Guard = ""
	Mutates  Guard = "mutates"       // the operation changes the customer's account
	TimedOut Guard = "timed out"     // the job is canceling because of its timeout or no-output timeout
	Retries  Guard = "attempts left" // fewer than MaxAttempts attempts were made
)

func (g Guard) holds(j Job) bool {
	switch g {
	case Mutates:
		return j.Operation.Mutates()
	case TimedOut:
		return j.Stop == fairlead.ReasonTimeout || j.Stop == fairlead.ReasonNoOutput
	case Retries:
		return j.Attempts < MaxAttempts
	}
	return true
}

// Transition is one row of the table. A state and an event can have several rows.
// Apply takes the first of these rows whose guard holds.
type Transition struct {
	From   State
	On     Kind
	If     Guard
	To     State
	Effect string // what else changes, for docs/reference/states.md
}

// Transitions returns all transitions. Apply refuses an event that has none.
func Transitions() []Transition {
	return []Transition{
		{Queued, Claim, Always, Claimed, "epoch + 1, attempt + 1; the start timeout begins"},
		{Queued, Cancel, Always, Canceled, "no tool has run"},
		{Queued, TimeOut, Always, Failed, "reason queue-timeout, or plan-expired"},

		{Claimed, Start, Always, Running, "the step is recorded; the lease begins"},
		{Claimed, Release, Always, Queued, "attempt − 1; claimable at once"},
		{Claimed, Cancel, Always, Canceled, "no tool has run; a late start is refused"},
		{Claimed, Die, Retries, Queued, "after a pause"},
		{Claimed, Die, Always, Failed, "reason start-timeout if no attempt started, else poison"},
		{Claimed, Expire, Retries, Queued, "after a pause"},
		{Claimed, Expire, Always, Failed, "reason start-timeout if no attempt started in time, else poison"},

		{Running, Start, Always, Running, "only for the same step, which lost the answer"},
		{Running, Renew, Always, Running, "the lease is extended"},
		{Running, Cancel, Always, Canceling, "the next answer asks the step to stop"},
		{Running, TimeOut, Always, Canceling, "reason timeout or no-output-timeout"},
		{Running, Succeed, Always, Succeeded, ""},
		{Running, Fail, Always, Failed, ""},
		{Running, Stopped, Always, Canceled, "the step was stopped on its machine"},
		{Running, Die, Mutates, Lost, "never repeated: a plan runs next"},
		{Running, Die, Retries, Queued, "after a pause"},
		{Running, Die, Always, Failed, "reason poison"},
		{Running, Expire, Mutates, Lost, "never repeated: a plan runs next"},
		{Running, Expire, Retries, Queued, "after a pause"},
		{Running, Expire, Always, Failed, "reason poison"},

		{Canceling, Start, Always, Canceling, "only for the same step, which lost the answer"},
		{Canceling, Renew, Always, Canceling, "the lease is extended until StopTTL is over; the answer asks the step to stop"},
		{Canceling, Cancel, Always, Canceling, "a repeated cancel"},
		{Canceling, Succeed, Always, Succeeded, "it succeeded before it could stop"},
		{Canceling, Fail, Always, Failed, ""},
		{Canceling, Stopped, TimedOut, Failed, "reason timeout or no-output-timeout"},
		{Canceling, Stopped, Always, Canceled, ""},
		{Canceling, Die, Mutates, Lost, "its outcome is unknown"},
		{Canceling, Die, TimedOut, Failed, "reason timeout or no-output-timeout"},
		{Canceling, Die, Always, Canceled, ""},
		{Canceling, Expire, Mutates, Lost, "its outcome is unknown"},
		{Canceling, Expire, TimedOut, Failed, "reason timeout or no-output-timeout"},
		{Canceling, Expire, Always, Canceled, ""},
	}
}

// table indexes Transitions by state and event. It is never changed.
var table = func() map[State]map[Kind][]Transition {
	t := map[State]map[Kind][]Transition{}
	for _, tr := range Transitions() {
		if t[tr.From] == nil {
			t[tr.From] = map[Kind][]Transition{}
		}
		t[tr.From][tr.On] = append(t[tr.From][tr.On], tr)
	}
	return t
}()

// Apply returns the job after the event. It does not change j.
//
// It returns a *StaleError if a leased event has another epoch than the job, if the
// job is in a state without a lease, or if a second step sends a Start. It returns a
// *TransitionError if the state does not allow the event, if a Claim comes before
// NotBefore or not before NotAfter, or if an Expire comes before the lease ends.
func Apply(j Job, e Event) (Job, error) {
	if e.Kind.Leased() && (e.Epoch != j.Lease.Epoch || !j.State.Leased()) {
		return j, &StaleError{Job: j.ID, State: j.State, Epoch: j.Lease.Epoch, Given: e.Epoch}
	}
	if e.Kind == Start && j.State != Claimed && e.Step != j.Lease.Step {
		return j, &StaleError{Job: j.ID, State: j.State, Epoch: j.Lease.Epoch, Given: e.Epoch}
	}
	if untimely(j, e) {
		return j, &TransitionError{Job: j.ID, State: j.State, Event: e.Kind}
	}
	for _, tr := range table[j.State][e.Kind] {
		if tr.If.holds(j) {
			return effect(j, e, tr.To), nil
		}
	}
	return j, &TransitionError{Job: j.ID, State: j.State, Event: e.Kind}
}

// untimely reports whether the event comes too early or too late. A repeated wake-up
// must not shorten the pause before a retry. An agent must not claim an apply whose plan
// expired. A sweep must not end a lease that was renewed
// after the sweep read the job.
func untimely(j Job, e Event) bool {
	switch e.Kind {
	case Claim:
		return e.At.Before(j.NotBefore) || j.TooLate(e.At)
	case Expire:
		return e.At.Before(j.Lease.Expires)
	}
	return false
}

// effect returns the job in the state given by the parameter to, with all other
// changes of the transition. The event determines most of these changes. The new
// state adds changes if the job ends, is queued again, or starts to cancel.
func effect(j Job, e Event, to State) Job {
	from := j.State
	if e.Kind == Die || e.Kind == Expire {
		j.Deaths = append(slices.Clip(j.Deaths), j.death(e)) // Clip: another copy of the job may share the array
	}
	j.State = to
	switch e.Kind {
	case Claim:
		j.Attempts++
		j.Lease = Lease{Epoch: j.Lease.Epoch + 1, Session: e.Session, Expires: e.At.Add(j.Terms.OrDefault().StartTimeout)}
		j.Claimed, j.Started = e.At, time.Time{}
		j.Reason, j.Message, j.ExitCode, j.Salvaged, j.DiskFull = "", "", nil, nil, false
	case Release:
		j.Attempts--
	case Start:
		if from == Claimed {
			j.Started, j.Lease.Step = e.At, e.Step
			j.Lease.Expires = time.Time{} // renewed never shortens a lease, and the start timeout may have minutes left
		}
		j.Lease.Expires = j.renewed(e.At)
	case Renew:
		j.Lease.Expires = j.renewed(e.At)
	}
	if to == Canceling && from != Canceling {
		j.StopAsked = e.At
	}
	switch e.Kind {
	case Cancel:
		if j.Stop == "" {
			j.Stop, j.StopBy = cmp.Or(e.Reason, fairlead.ReasonCanceled), e.By
		}
	case TimeOut:
		if to == Canceling {
			j.Stop, j.Message = cmp.Or(e.Reason, fairlead.ReasonTimeout), e.Message
		}
	}
	switch {
	case to == Queued:
		j.Requeued = e.At
		j.Lease.Session, j.Lease.Step, j.Lease.Expires = "", "", time.Time{}
		j.NotBefore = e.At
		if e.Kind != Release {
			j.NotBefore = e.At.Add(Backoff(j.Attempts))
			j.Reason, j.Message, j.ExitCode, j.Salvaged, j.DiskFull = reasonOf(e, from), e.Message, e.ExitCode, e.Salvaged, e.DiskFull
		}
	case to.Final():
		j.Finished = e.At
		j.Lease.Expires = time.Time{} // a job that ended cannot be renewed
		j.ExitCode, j.Salvaged, j.DiskFull = e.ExitCode, e.Salvaged, e.DiskFull
		why := j.Message // set if a timeout stopped it
		j.Message = ""
		if to != Succeeded {
			j.Reason, j.Message = endReason(j, e, from, to), e.Message
			if from == Canceling && j.Reason == j.Stop && why != "" {
				j.Message = joined(why, e.Message)
			}
		}
	}
	return j
}

// death returns the record of the attempt that the event e ends. It computes the
// time of the last renewal from the end of the lease.
func (j Job) death(e Event) Death {
	d := Death{Epoch: j.Lease.Epoch, Session: j.Lease.Session, Started: j.Started, At: e.At, Reason: reasonOf(e, j.State), Message: fairlead.Clip(e.Message, maxDeath), ExitCode: e.ExitCode, DiskFull: e.DiskFull}
	switch {
	case j.State == Claimed:
		d.LastSeen = j.Claimed
	case j.State == Canceling && !j.Lease.Expires.Before(j.StopAsked.Add(j.Terms.StopTTL())):
		// StopTTL limited the lease, so its end does not show the last renewal.
	default:
		d.LastSeen = j.Lease.Expires.Add(-j.Terms.OrDefault().LeaseTTL)
	}
	return d
}

// renewed returns the end of the lease that is renewed at the given time.
func (j Job) renewed(at time.Time) time.Time {
	x := at.Add(j.Terms.OrDefault().LeaseTTL)
	if end := j.StopAsked.Add(j.Terms.StopTTL()); j.State == Canceling && end.Before(x) {
		x = end // a step that never stops must not keep its job forever
	}
	if x.Before(j.Lease.Expires) {
		return j.Lease.Expires // a clock that was set back must not shorten a lease
	}
	return x
}

// endReason returns the reason of a job that ends without success.
func endReason(j Job, e Event, from, to State) fairlead.Reason {
	switch {
	case e.Kind == TimeOut:
		return cmp.Or(e.Reason, fairlead.ReasonQueueTimeout)
	case e.Kind == Cancel:
		return j.Stop
	case from == Canceling && to != Lost && e.Kind != Fail:
		return j.Stop // the reason of the cancel or timeout applies, however the step ended
	case to == Failed && (e.Kind == Die || e.Kind == Expire):
		for _, d := range j.Deaths {
			if d.Reason != fairlead.ReasonStartTimeout {
				return fairlead.ReasonPoison
			}
		}
		return fairlead.ReasonStartTimeout // no attempt started, so the cause is probably the runner, not the job
	}
	return reasonOf(e, from)
}

// reasonOf returns the reason of an event. A missing reason is derived from the
// event's kind and the job's state.
func reasonOf(e Event, from State) fairlead.Reason {
	switch e.Kind {
	case Die:
		return cmp.Or(e.Reason, fairlead.ReasonStepDied)
	case Expire:
		if from == Claimed {
			return fairlead.ReasonStartTimeout
		}
		return fairlead.ReasonLeaseExpired
	case Stopped:
		return cmp.Or(e.Reason, fairlead.ReasonCanceled)
	}
	return e.Reason
}

// joined returns why a job was stopped, followed by the step's own message.
func joined(why, message string) string {
	if message == "" {
		return why
	}
	return why + "; " + message
}
