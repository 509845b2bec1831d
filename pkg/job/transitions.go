package job

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Kind is what happened to a job.
type Kind string

// The kinds of events.
const (
	Claim   Kind = "claim"   // an agent takes the job; the epoch rises
	Release Kind = "release" // the agent gives it back: it was never launched
	Start   Kind = "start"   // the step traded its launch token for the spec
	Renew   Kind = "renew"   // the step is alive
	Cancel  Kind = "cancel"  // a person or the deployment wants it stopped
	TimeOut Kind = "timeout" // it waited, ran or was silent for too long
	Succeed Kind = "succeed" // the step reports success
	Fail    Kind = "fail"    // the step reports a failure
	Stopped Kind = "stopped" // the step reports that it stopped because it was told to
	Die     Kind = "die"     // the agent reports that the step is gone, and all it started
	Expire  Kind = "expire"  // nobody renewed the lease in time
)

// Kinds lists every kind of event.
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

// Event is what happened to a job, and when.
type Event struct {
	Kind     Kind
	At       time.Time
	Epoch    int64              // of leased events
	Session  fairlead.SessionID // of Claim
	Step     string             // of Start: names the step process, so that a repeated Start is known; never empty
	Reason   fairlead.Reason    // of Cancel, TimeOut, Fail, Stopped, Die
	Message  string
	ExitCode *int
	Salvaged *Salvaged      // of Fail, Stopped, Die
	DiskFull bool           // of Fail, Stopped, Die
	By       fairlead.Actor // of Cancel
}

// Guard is a condition on the job that chooses between two transitions of the
// same event.
type Guard string

// The guards. The empty guard always holds.
const (
	Always   Guard = ""
	Mutates  Guard = "mutates"       // the operation changes the customer's account
	TimedOut Guard = "timed out"     // it is being stopped because it ran, or was silent, for too long
	Retries  Guard = "attempts left" // it may be repeated, and has been tried less than MaxAttempts times
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

// Transition is one row of the table. The first row of an event whose guard
// holds is taken.
type Transition struct {
	From   State
	On     Kind
	If     Guard
	To     State
	Effect string // what else changes, for docs/reference/states.md
}

// Transitions returns every transition there is. What is not here is refused.
func Transitions() []Transition {
	return []Transition{
		{Queued, Claim, Always, Claimed, "epoch + 1, attempt + 1; the start deadline begins"},
		{Queued, Cancel, Always, Canceled, "no tool has run"},
		{Queued, TimeOut, Always, Failed, "reason queue-timeout"},

		{Claimed, Start, Always, Running, "the step is named; the lease begins"},
		{Claimed, Release, Always, Queued, "attempt − 1; claimable at once"},
		{Claimed, Cancel, Always, Canceled, "no tool has run; a late start is refused"},
		{Claimed, Die, Retries, Queued, "after a pause"},
		{Claimed, Die, Always, Failed, "reason start-timeout if all its agents had gone before it began, else poison"},
		{Claimed, Expire, Retries, Queued, "after a pause"},
		{Claimed, Expire, Always, Failed, "reason start-timeout if it never began in time, else poison"},

		{Running, Start, Always, Running, "only the same step again, whose answer was lost"},
		{Running, Renew, Always, Running, "the lease is extended"},
		{Running, Cancel, Always, Canceling, "the next answer to the step tells it"},
		{Running, TimeOut, Always, Canceling, "reason timeout or no-output-timeout"},
		{Running, Succeed, Always, Succeeded, ""},
		{Running, Fail, Always, Failed, ""},
		{Running, Stopped, Always, Canceled, "somebody stopped the step on its machine"},
		{Running, Die, Mutates, Lost, "never repeated: a plan runs next"},
		{Running, Die, Retries, Queued, "after a pause"},
		{Running, Die, Always, Failed, "reason poison"},
		{Running, Expire, Mutates, Lost, "never repeated: a plan runs next"},
		{Running, Expire, Retries, Queued, "after a pause"},
		{Running, Expire, Always, Failed, "reason poison"},

		{Canceling, Start, Always, Canceling, "only the same step again, whose answer was lost"},
		{Canceling, Renew, Always, Canceling, "the lease is extended until StopTTL is over; the answer says cancel"},
		{Canceling, Cancel, Always, Canceling, "asked twice"},
		{Canceling, Succeed, Always, Succeeded, "it was faster"},
		{Canceling, Fail, Always, Failed, ""},
		{Canceling, Stopped, TimedOut, Failed, "reason as it was stopped for"},
		{Canceling, Stopped, Always, Canceled, ""},
		{Canceling, Die, Mutates, Lost, "nobody knows how far it came"},
		{Canceling, Die, TimedOut, Failed, "reason as it was stopped for"},
		{Canceling, Die, Always, Canceled, ""},
		{Canceling, Expire, Mutates, Lost, "nobody knows how far it came"},
		{Canceling, Expire, TimedOut, Failed, "reason as it was stopped for"},
		{Canceling, Expire, Always, Canceled, ""},
	}
}

// table indexes Transitions by state and event. It is built once and only read.
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

// Apply returns the job after the event. A leased event with another epoch, or
// after the lease is over, is a *StaleError, and so is a Start by another step
// than the one that started; an event that the state does not know, a Claim
// before the job's pause is over and an Expire before its lease is are a
// *TransitionError. j is not changed.
func Apply(j Job, e Event) (Job, error) {
	if e.Kind.Leased() && (e.Epoch != j.Lease.Epoch || !j.State.Leased()) {
		return j, &StaleError{Job: j.ID, State: j.State, Epoch: j.Lease.Epoch, Given: e.Epoch}
	}
	if e.Kind == Start && j.State != Claimed && e.Step != j.Lease.Step {
		return j, &StaleError{Job: j.ID, State: j.State, Epoch: j.Lease.Epoch, Given: e.Epoch}
	}
	if early(j, e) {
		return j, &TransitionError{Job: j.ID, State: j.State, Event: e.Kind}
	}
	for _, tr := range table[j.State][e.Kind] {
		if tr.If.holds(j) {
			return effect(j, e, tr.To), nil
		}
	}
	return j, &TransitionError{Job: j.ID, State: j.State, Event: e.Kind}
}

// early reports whether the time that the event speaks of has not come. A
// repeated wake-up must not cut a pause short; and a sweep that saw a lease run
// out, and then lost the race against a renewal, must not end it after all.
func early(j Job, e Event) bool {
	switch e.Kind {
	case Claim:
		return e.At.Before(j.NotBefore)
	case Expire:
		return e.At.Before(j.Lease.Expires)
	}
	return false
}

// effect is what a transition changes besides the state. The event decides;
// the states only say whether the job is over or waits again.
func effect(j Job, e Event, to State) Job {
	from := j.State
	if e.Kind == Die || e.Kind == Expire {
		j.Deaths = append(slices.Clip(j.Deaths), j.death(e)) // never into an array that another copy of the job has
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
			j.Lease.Expires = time.Time{} // what is left of the time to start is not the step's: it may be minutes
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
		j.Lease.Expires = time.Time{} // nobody may renew it
		j.ExitCode, j.Salvaged, j.DiskFull = e.ExitCode, e.Salvaged, e.DiskFull
		why := j.Message // why it was stopped, if time has done it
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

// death is what is known of the attempt that e ends. The last renewal is told
// from the lease that it bought.
func (j Job) death(e Event) Death {
	d := Death{Epoch: j.Lease.Epoch, Session: j.Lease.Session, Started: j.Started, At: e.At, Reason: reasonOf(e, j.State), Message: fairlead.Clip(e.Message, maxDeath), ExitCode: e.ExitCode, DiskFull: e.DiskFull}
	switch {
	case j.State == Claimed:
		d.LastSeen = j.Claimed
	case j.State == Canceling && !j.Lease.Expires.Before(j.StopAsked.Add(j.Terms.StopTTL())):
		// Its end was fixed when it was asked to stop, and tells nothing.
	default:
		d.LastSeen = j.Lease.Expires.Add(-j.Terms.OrDefault().LeaseTTL)
	}
	return d
}

// renewed returns when the lease ends after a renewal at the given time.
func (j Job) renewed(at time.Time) time.Time {
	x := at.Add(j.Terms.OrDefault().LeaseTTL)
	if end := j.StopAsked.Add(j.Terms.StopTTL()); j.State == Canceling && end.Before(x) {
		x = end // a step that never stops must not hold its job for ever
	}
	if x.Before(j.Lease.Expires) {
		return j.Lease.Expires // a clock that jumped back must not shorten a lease
	}
	return x
}

// endReason is the reason of a job that ends without success.
func endReason(j Job, e Event, from, to State) fairlead.Reason {
	switch {
	case e.Kind == TimeOut:
		return fairlead.ReasonQueueTimeout
	case e.Kind == Cancel:
		return j.Stop
	case from == Canceling && to != Lost && e.Kind != Fail:
		return j.Stop // somebody else wanted the end; how the step went does not matter
	case to == Failed && (e.Kind == Die || e.Kind == Expire):
		for _, d := range j.Deaths {
			if d.Reason != fairlead.ReasonStartTimeout {
				return fairlead.ReasonPoison
			}
		}
		return fairlead.ReasonStartTimeout // the runner is the suspect, not the job
	}
	return reasonOf(e, from)
}

// reasonOf is the reason that an event from the state gives.
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

// joined is why a job was stopped, and what its step said of that.
func joined(why, message string) string {
	if message == "" {
		return why
	}
	return why + "; " + message
}
