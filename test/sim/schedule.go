package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// scheduledName is the name of the action that runs by its schedule.
const scheduledName = "nightly"

// timing is when the action runs: at minutes of the run's first hour, which the schedule names on a clock in its time zone. A run
// begins at midnight in UTC, so a schedule that is read in another zone has no time in it.
type timing struct {
	zone               string
	ahead              time.Duration // the zone's clock is so far ahead of UTC
	first, last, every int           // minutes
}

// zones are time zones in winter, with clocks that no other one of them shows.
var zones = []timing{
	{zone: "Europe/Berlin", ahead: time.Hour},
	{zone: "America/St_Johns", ahead: -(3*time.Hour + 30*time.Minute)},
	{zone: "Asia/Kolkata", ahead: 5*time.Hour + 30*time.Minute},
	{zone: "Asia/Kathmandu", ahead: 5*time.Hour + 45*time.Minute},
}

// drawTiming returns the schedule of the app. A third of the apps have one.
func drawTiming(w *world, until time.Duration) timing {
	if w.unit("schedule") >= 1./3 {
		return timing{}
	}
	t := zones[w.intn("time zone", len(zones))]
	t.first, t.last, t.every = 1, 1+int(until/time.Minute), 1+w.intn("minutes of the schedule", 2)
	return t
}

// set reports whether the app has a schedule.
func (t timing) set() bool { return t.every > 0 }

// cron returns the expression of the schedule.
func (t timing) cron() string {
	local := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(t.ahead)
	return fmt.Sprintf("%d-%d/%d %d * * *", local.Minute()+t.first, local.Minute()+t.last, t.every, local.Hour())
}

// is reports whether the schedule has the time.
func (t timing) is(at time.Time) bool {
	at = at.UTC()
	m := at.Minute()
	return at.Hour() == 0 && at.Truncate(time.Minute).Equal(at) && m >= t.first && m <= t.last && (m-t.first)%t.every == 0
}

// newest returns the newest time of the schedule that is not after the given time; zero: there was none.
func (t timing) newest(now time.Time) time.Time {
	for at := now.Truncate(time.Minute); at.UTC().Hour() == 0 && at.UTC().Year() == 2000; at = at.Add(-time.Minute) {
		if t.is(at) {
			return at
		}
	}
	return time.Time{}
}

// end returns the time of the run at which the runs of the schedule have ended, if no fault occurs.
func (t timing) end() time.Duration {
	if !t.set() {
		return 0
	}
	return time.Duration(t.last+3) * time.Minute
}

// clockwork is what the ledger knows of the schedule of one install.
type clockwork struct {
	store.ActionSchedule
	since   time.Time // when the control plane made the schedule, started its last run or skipped its last time
	started time.Time // when it started its last run, on the servers' clock
}

// scheduleEnds records that the control plane deleted a schedule.
func (w *world) scheduleEnds(k engine.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.clocks, k)
}

// scheduleWritten checks a written schedule: each of its times has at most one run, which starts when no other one is active, and
// times that have passed are not made up for.
func (w *world) scheduleWritten(k engine.Key, s store.ActionSchedule) {
	now := w.serverTime()
	w.mu.Lock()
	c, known := w.clocks[k]
	if !known {
		c = &clockwork{since: time.Now()}
		w.clocks[k] = c
	}
	was := c.ActionSchedule
	c.ActionSchedule = s
	var wrong []string
	if next := s.Next.Add(-24 * time.Hour); !w.plan.timing.is(s.Next) && !w.plan.timing.is(next) {
		wrong = append(wrong, "its next time is "+s.Next.String())
	}
	var handled time.Time
	if s.Skipped != nil && (was.Skipped == nil || *s.Skipped != *was.Skipped) {
		handled = s.Skipped.At
	}
	var others []string
	started := c.started
	if s.Last != was.Last {
		handled = s.LastAt
		switch {
		case !w.plan.timing.is(s.LastAt):
			wrong = append(wrong, "it starts a run for "+s.LastAt.String())
		case s.LastAt.After(now) && w.faults["server-clock-jumps"] == 0:
			wrong = append(wrong, fmt.Sprintf("at %s it starts the run for %s", now, s.LastAt))
		case known && !s.LastAt.After(was.LastAt):
			wrong = append(wrong, fmt.Sprintf("it starts a second run for %s", s.LastAt))
		}
		started = w.deployments[s.Last].Created
		for id, d := range w.deployments {
			if id != s.Last && d.Install == s.Install && d.Kind == deployment.Action && d.Action == s.Action && !d.State.Final() {
				others = append(others, string(id))
			}
		}
	}
	if !handled.IsZero() {
		if !handled.After(c.started) {
			wrong = append(wrong, fmt.Sprintf("%s has a result of its own, and had passed when the last run started at %s", handled, c.started))
		}
		c.since, c.started = time.Now(), started
	}
	w.mu.Unlock()
	if wrong != nil {
		w.violate("schedules-keep-their-times", "%s runs at %q in %s, but %s", s.InstallName, s.Cron, s.Timezone, strings.Join(wrong, ", and "))
	}
	if slices.Sort(others); others != nil {
		w.violate("scheduled-runs-do-not-overlap", "%s of %s is started by its schedule as %s while %s has not ended", s.Action, s.InstallName, s.Last, strings.Join(others, ", "))
	}
}

// startsBySchedule checks that the schedule has a record of a run that it started.
func (w *world) startsBySchedule(d store.Deployment) {
	s, err := store.New(w.table).ActionSchedule(context.Background(), d.Install, d.Action)
	if err != nil || s.V.Last != d.ID {
		w.violate("schedules-keep-their-times", "%s of %s was started by a schedule that does not name it: %v", d.ID, d.InstallName, err)
	}
}

// scheduledWithin is the longest time from a time of a schedule, or from the end of the faults, to its run.
const scheduledWithin = 45 * time.Second

// checkSchedules checks that times of schedules that have passed have a run, or were skipped with a reason. The run calls it every
// second after the end of the faults.
func (w *world) checkSchedules() {
	if !w.plan.timing.set() {
		return
	}
	w.mu.Lock()
	if time.Since(w.start.Add(w.calmed)) < scheduledWithin || w.faults["server-clock-jumps"] > 0 { // a clock that was ahead passed times that have not come
		w.mu.Unlock()
		return
	}
	due := w.plan.timing.newest(time.Now().Add(-scheduledWithin))
	var late []string
	for k, c := range w.clocks {
		if c.since.Before(due) {
			late = append(late, c.InstallName)
			w.clocks[k].since = time.Now() // so that it is not reported again each second
		}
	}
	w.mu.Unlock()
	slices.Sort(late)
	for _, install := range late {
		w.violate("schedules-are-served", "%s of %s has no run for %s, and its schedule shows no reason", scheduledName, install, due)
	}
}
