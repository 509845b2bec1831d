package kernel

import (
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

const (
	// heartbeatEvery is the default of Intervals.Heartbeat.
	heartbeatEvery = 15 * time.Second
	// lostAtLatest is the upper bound of LostAfter. With this bound, a dead agent that has
	// jobs is shown as lost within a minute.
	lostAtLatest = 55 * time.Second
	// idleRetries is the time that an idle agent has for retries of its heartbeat. With a
	// heartbeat every 10 minutes and a sweep every 12 s, a dead agent is reported after 11 minutes.
	idleRetries = 45 * time.Second
)

// Intervals sets how often agents call the control plane, and how long the control
// plane may hold a request. The zero value costs too much where each request is billed
// by count and duration.
type Intervals struct {
	Heartbeat time.Duration // time between the heartbeats of an agent that has jobs; 0: 15 s
	// IdleHeartbeat is the time between the heartbeats of an agent that has no jobs; 0: as
	// Heartbeat. An agent also renews its session, and the renewal is a heartbeat. So a time
	// of two thirds of a session costs no request of its own.
	IdleHeartbeat time.Duration
	// Prompt makes the control plane answer a lease renewal at once. Without it, a
	// renewal waits for a cancelation until the next renewal is due. With it, a
	// cancelation reaches the step at its next renewal: up to 15 s later, or 2 s later if
	// the step finds its cancel marker.
	Prompt bool
	// LogEvery is how long a step may keep bytes of its log before it sends them; 0: the
	// step's default, 100 ms. A piece of 64 KiB is sent at once.
	LogEvery time.Duration
	// LogBulk is how long a step may keep a piece of more than 8 KiB while no reader follows the
	// log; 0: LogEvery. Such a log grows fast, and its larger pieces cost less.
	LogBulk time.Duration
	// LogFollowed replaces LogEvery while a reader follows the log; 0: LogEvery. A step
	// gets the new interval with the answer to its next renewal.
	LogFollowed time.Duration
	// Watch is the time between two lists of all runners by the sweep; 0: 15 s. In between, the sweep
	// looks at the runners whose last known heartbeat is too old.
	Watch time.Duration
	// Letters is the time between two searches of a runner's queue for dead letters, as long as
	// the runner acts on its wake-ups: then its queue has hardly any. 0: as for other runners.
	Letters time.Duration
}

// Metered returns the intervals for platforms that bill each request, such as AWS
// Lambda. Heartbeats would be most of the cost of an idle runner, and a waiting request
// keeps a function running. So the renewal of its session is the heartbeat of an idle agent.
// If the agent is dead, the first job that it does not claim shows it. A busy agent has time
// for retries before it is shown as lost. Lists of runners are reads, and their number grows
// with the number of runners; a new runner can be lost 11 minutes after it is made, so it is
// listed before. Each piece of a log costs a write and an invocation, so few
// pieces are sent while no reader follows, and those of a fast log are large. A search for dead letters is a request, a write and
// its record in the table's stream.
func Metered() Intervals {
	return Intervals{Heartbeat: 18 * time.Second, IdleHeartbeat: 10 * time.Minute, Prompt: true, Watch: 10 * time.Minute, Letters: 24 * time.Hour,
		LogEvery: 2 * time.Second, LogBulk: 5 * time.Second, LogFollowed: 500 * time.Millisecond}
}

// HeartbeatEvery returns the time between two heartbeats of an agent that has jobs.
func (k *Kernel) HeartbeatEvery() time.Duration {
	if k.Intervals.Heartbeat > 0 {
		return k.Intervals.Heartbeat
	}
	return heartbeatEvery
}

// IdleHeartbeatEvery returns the time between two heartbeats of an agent without jobs.
func (k *Kernel) IdleHeartbeatEvery() time.Duration {
	return max(k.HeartbeatEvery(), k.Intervals.IdleHeartbeat)
}

// IdleLostAfter returns how long after its last heartbeat an agent without jobs counts as
// lost.
func (k *Kernel) IdleLostAfter() time.Duration {
	if k.IdleHeartbeatEvery() == k.HeartbeatEvery() {
		return k.LostAfter()
	}
	return k.IdleHeartbeatEvery() + idleRetries
}

// LostAfter returns how long after its last heartbeat an agent that has jobs counts as lost:
// three missed heartbeats, at most lostAtLatest. Agents retry a heartbeat that failed.
func (k *Kernel) LostAfter() time.Duration { return min(3*k.HeartbeatEvery(), lostAtLatest) }

// WatchEvery returns the time between two lists of all runners by the sweep.
func (k *Kernel) WatchEvery() time.Duration {
	if k.Intervals.Watch > 0 {
		return k.Intervals.Watch
	}
	return watchEvery
}

// The time between two searches of a queue for dead letters is letterLooks lists of the runners, but
// at most maxLetters. It is long, because even an empty search takes one second on SQS.
const (
	letterLooks = 15
	maxLetters  = time.Hour
)

// LettersEvery returns the time between two searches of the runner's queue for dead letters, if the
// last one was at this time. Only a process that sent a wake-up again knows that the runner did
// not act on it; if another process sweeps next, the search comes later.
func (k *Kernel) LettersEvery(id fairlead.RunnerID, last time.Time) time.Duration {
	every := min(letterLooks*k.WatchEvery(), maxLetters)
	if k.Resent(id, last) {
		return every
	}
	return max(every, k.Intervals.Letters)
}

// watchEvery is the default of Intervals.Watch.
const watchEvery = 15 * time.Second
