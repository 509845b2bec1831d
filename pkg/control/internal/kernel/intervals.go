package kernel

import "time"

const (
	// heartbeatEvery is the default of Intervals.Heartbeat.
	heartbeatEvery = 15 * time.Second
	// lostAtLatest is the upper bound of LostAfter. With this bound, a dead agent that has
	// jobs is shown as lost within a minute.
	lostAtLatest = 55 * time.Second
	// idleRetries is the time that an idle agent has for retries of its heartbeat.
	idleRetries = time.Minute
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
	// LogFollowed replaces LogEvery while a reader follows the log; 0: LogEvery. A step
	// gets the new interval with the answer to its next renewal.
	LogFollowed time.Duration
	Watch       time.Duration // time between two checks whether a runner is lost; 0: 15 s
}

// Metered returns the intervals for platforms that bill each request, such as AWS
// Lambda. Heartbeats would be most of the cost of an idle runner, and a waiting request
// keeps a function running. So the renewal of its session is the heartbeat of an idle agent.
// If the agent is dead, the first job that it does not claim shows it. A busy agent has time
// for retries before it is shown as lost. Checks of runners are reads, and their number grows
// with the number of runners. Each piece of a log costs a write and an invocation, so few
// pieces are sent while no reader follows.
func Metered() Intervals {
	return Intervals{Heartbeat: 18 * time.Second, IdleHeartbeat: 10 * time.Minute, Prompt: true, Watch: 4 * time.Minute,
		LogEvery: 2 * time.Second, LogFollowed: 500 * time.Millisecond}
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

// WatchEvery returns the time between two checks of a runner by the sweep.
func (k *Kernel) WatchEvery() time.Duration {
	if k.Intervals.Watch > 0 {
		return k.Intervals.Watch
	}
	return watchEvery
}

// watchEvery is the default of Intervals.Watch.
const watchEvery = 15 * time.Second
