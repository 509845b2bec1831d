package agent

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

const (
	// defaultBeat is the heartbeat period until the control plane sets one.
	defaultBeat = 15 * time.Second
	// beatTimeout bounds one session heartbeat. An agent with jobs is lost after 55 s at the latest.
	// So there is time for further heartbeats if one gets no response.
	beatTimeout = 8 * time.Second
)

// beats is the schedule of the agent's heartbeats. Safe for concurrent use.
type beats struct {
	mu           sync.Mutex
	at           time.Time     // of the last accepted heartbeat, or of the session that carried it
	count        int           // number of accepted heartbeats
	period, idle time.Duration // between heartbeats, with jobs and without
	busy         bool          // the last heartbeat named jobs
}

// accepted notes the answer to a heartbeat.
func (b *beats) accepted(at time.Time, sent wire.SessionHeartbeat, st wire.SessionStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.busy = at, len(sent.Running) > 0
	b.count++
	if st.HeartbeatSeconds > 0 {
		b.period = time.Duration(st.HeartbeatSeconds) * time.Second
		b.idle = max(b.period, time.Duration(st.IdleHeartbeatSeconds)*time.Second)
	}
}

// longest returns the longest wait after a failed heartbeat.
func (b *beats) longest() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cmp.Or(b.period, defaultBeat)
}

func (b *beats) number() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// wait returns the time until the next heartbeat. An agent that has jobs, or whose last heartbeat
// named jobs, sends heartbeats more often.
func (b *beats) wait(now time.Time, jobs bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	period := cmp.Or(b.period, defaultBeat)
	if b.busy {
		return b.at.Add(period).Sub(now)
	}
	idle := b.at.Add(max(period, b.idle)).Sub(now)
	if jobs {
		return min(idle, period) // the claim of the first job showed that the agent is alive
	}
	return idle
}

// heartbeatLoop sends heartbeats until ctx ends. The requests use the context sending. After a failed
// heartbeat it waits for a short pause instead of a full period: otherwise the control plane could
// mark the runner lost after one lost response. It calls the function sent after each heartbeat,
// successful or failed.
func (a *Agent) heartbeatLoop(ctx, sending context.Context, sent func()) {
	onChange := &change{log: a.log}
	soon := patient(a.options).Pauses()
	for {
		err := a.beat(sending, false)
		sent()
		if ctx.Err() != nil {
			return
		}
		a.status.Beat(err)
		onChange.error("cannot send heartbeats; the agent tries again", err)
		var pause time.Duration
		if err != nil {
			pause = soon.NextBackOff()
		} else {
			soon.Reset()
		}
		if !a.awaitBeat(ctx, pause) {
			return
		}
	}
}

// awaitBeat waits until the next heartbeat is due; pause is the longest wait, if it is not 0. It
// returns false if ctx ends first.
func (a *Agent) awaitBeat(ctx context.Context, pause time.Duration) bool {
	for {
		a.mu.Lock()
		jobs := len(a.steps) > 0
		a.mu.Unlock()
		seen := a.beats.number()
		wait := a.beats.wait(time.Now(), jobs) // monotonic times
		if pause > 0 {
			wait = min(pause, a.beats.longest())
		}
		select {
		case <-time.After(wait):
		case <-a.beatNow:
			return true
		case <-a.gotJob:
			continue // the next heartbeat may be due sooner
		case <-ctx.Done():
			return false
		}
		if pause > 0 || a.beats.number() == seen {
			return true
		}
		// Meanwhile the session was renewed, and the renewal was a heartbeat.
	}
}

// report returns the agent's heartbeat.
func (a *Agent) report(ctx context.Context) wire.SessionHeartbeat {
	unhealthyReason := a.executors.unhealthyReason(ctx)
	seeds := a.unsentSeeds(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	in := wire.SessionHeartbeat{Capacity: a.executors.capacity(), Running: []string{}, Draining: a.draining, Customer: a.reportedMode(),
		Configuration: a.executors.revision(), Unhealthy: unhealthyReason, Isolation: a.executors.isolation(), WarmSteps: len(a.warm), InstallKeys: a.hasSeed(), Seeds: seeds}
	for _, s := range a.steps {
		if s.handle != nil {
			job, _ := jobOf(s.handle.ID())
			in.Running = append(in.Running, job)
		}
	}
	return in
}

// reported applies the answer to a heartbeat.
func (a *Agent) reported(ctx context.Context, sent wire.SessionHeartbeat, st wire.SessionStatus) {
	a.beats.accepted(time.Now(), sent, st) // a monotonic time
	a.seedReport.accepted(sent.Seeds, a.now())
	a.want(st.Wanted)
	a.warn(st.Situations)
	if len(st.KeysWanted) > 0 {
		// The report needs a session, and the caller may be opening one.
		a.background.Go(func() { a.reportKeys(context.WithoutCancel(ctx), st.KeysWanted) })
	}
	// Only a new configuration triggers another heartbeat. If a repeated configuration did so
	// too, the agent would send heartbeats without a pause. The response that opened the session
	// can also contain a configuration. This heartbeat did not report that configuration yet.
	if a.executors.update(ctx, st.Configuration) || a.executors.revision() != sent.Configuration {
		notify(a.freed) // the new configuration may allow more slots
		notify(a.aheadNow)
		notify(a.beatNow) // report at once whether the configuration can be applied
	}
}

// beat sends a heartbeat. If it must open a session first, the session carries the heartbeat.
func (a *Agent) beat(ctx context.Context, ending bool) error {
	request, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	before := a.beats.number()
	return a.session.do(request, func(c *client.Client) error {
		if !ending && a.beats.number() != before {
			return nil // the session was opened with this heartbeat
		}
		in := a.report(ctx)
		in.Ending = ending
		st, err := c.HeartbeatSession(request, in)
		if err == nil {
			a.reported(ctx, in, st)
		}
		return err
	})
}

// warn logs the situations that the operator should know. The control plane repeats them in its
// responses, so warn logs each situation once per agent process.
func (a *Agent) warn(situations []wire.Situation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range situations {
		if a.warned[s.What] {
			continue
		}
		if a.warned == nil {
			a.warned = map[string]bool{}
		}
		a.warned[s.What] = true
		a.log.Warn(s.What, "situation", s.Kind, "known", strings.Join(s.Known, " "))
	}
}
