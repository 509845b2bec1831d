package kernel

import "time"

const (
	// heartbeatEvery is how often an agent says how it is, unless Intervals says
	// otherwise.
	heartbeatEvery = 15 * time.Second
	// lostAtLatest is how long after its last word a session counts as lost at
	// the latest: a dead runner is shown within a minute.
	lostAtLatest = 55 * time.Second
)

// Intervals is how often those who call speak, and how long they are held. Where
// each request is paid for by number and by time, the zero value is too dear.
type Intervals struct {
	Heartbeat time.Duration // how often an agent says how it is; 0: 15 s
	// Prompt has the renewal of a lease answered at once. It otherwise waits for
	// a cancelation until the next is due; a cancelation is then heard by the
	// next renewal, up to 15 s later.
	Prompt bool
	Watch  time.Duration // how often each runner is looked at for being lost; 0: 15 s
}

// Metered is the intervals where each request is paid for. Heartbeats are most of
// what an idle runner costs, and a request that waits is a function that waits.
// 36 s leave an agent time for two more tries before it would be shown as lost.
// Looks at runners are reads, which grow with their number.
func Metered() Intervals {
	return Intervals{Heartbeat: 36 * time.Second, Prompt: true, Watch: 2 * time.Minute}
}

// HeartbeatEvery is how often an agent is to say how it is.
func (k *Kernel) HeartbeatEvery() time.Duration {
	if k.Intervals.Heartbeat > 0 {
		return k.Intervals.Heartbeat
	}
	return heartbeatEvery
}

// LostAfter is how long after its last word a session counts as lost: three
// missed heartbeats, or fewer where they are rare; agents repeat one that failed.
func (k *Kernel) LostAfter() time.Duration { return min(3*k.HeartbeatEvery(), lostAtLatest) }

// WatchEvery is how often the sweep looks at each runner.
func (k *Kernel) WatchEvery() time.Duration {
	if k.Intervals.Watch > 0 {
		return k.Intervals.Watch
	}
	return watchEvery
}

// watchEvery is how often the sweep looks at every runner, unless Intervals says
// otherwise.
const watchEvery = 15 * time.Second
