// Package schedule computes the times of a schedule: a cron expression in a named time zone. It is pure: callers pass
// the time in. The names of time zones come from the program's copy of the IANA database if the machine has none.
package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a container image without the database would refuse every time zone

	"github.com/robfig/cron/v3"
)

// Schedule is a valid cron expression in a time zone. The zero Schedule has no times.
type Schedule struct {
	spec *cron.SpecSchedule // evaluated in UTC, if wall is set, else in zone
	zone *time.Location
	wall bool // the expression names hours, so it means the time on a clock in the zone
}

// fields are the five fields of an expression, without seconds, and without names such as @daily.
const fields = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow

// allHours are the bits of a SpecSchedule.Hour that matches every hour.
const allHours = 1<<24 - 1

// start is a time from which every valid expression has a next time: robfig's parser searches five years.
var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrZone is wrapped by the error of a time zone that is not known.
var ErrZone = errors.New("not a time zone")

// Parse reads an expression of five fields, such as "0 3 * * *", and the name of a time zone, such as "Europe/Berlin".
// The name "" means UTC. The error wraps ErrZone if the time zone is wrong; any other error is about the expression.
func Parse(expression, zone string) (Schedule, error) {
	if zone == "" {
		zone = "UTC"
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" { // Local differs from machine to machine
		return Schedule{}, fmt.Errorf("%q is %w", zone, ErrZone)
	}
	if strings.Contains(expression, "TZ=") {
		return Schedule{}, errors.New("the time zone has a field of its own")
	}
	parsed, err := cron.NewParser(fields).Parse(expression)
	if err != nil {
		return Schedule{}, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Schedule{}, fmt.Errorf("the expression has the unknown form %T", parsed)
	}
	s := Schedule{spec: spec, zone: loc, wall: spec.Hour&allHours != allHours}
	if spec.Location = loc; s.wall {
		spec.Location = time.UTC
	}
	if s.Next(start).IsZero() {
		return Schedule{}, errors.New("no day has this date")
	}
	return s, nil
}

// Next returns the first time of the schedule after the given time, in UTC. The zero time means that there is none.
//
// If the expression names hours, it has one time for each of its times on the clock of the zone. A time that the clock
// skips is moved to the end of the skipped hour. A time that the clock shows twice counts once, the first time. If the
// expression matches every hour, its times continue at equal distances over such a change.
func (s Schedule) Next(after time.Time) time.Time {
	if s.spec == nil {
		return time.Time{}
	}
	if !s.wall {
		return s.spec.Next(after).UTC()
	}
	y, m, d := after.In(s.zone).Date()
	hour, minute, second := after.In(s.zone).Clock()
	clock := time.Date(y, m, d, hour, minute, second, 0, time.UTC)
	for { // after a clock was set back, the first times that it shows can be before the given time
		if clock = s.spec.Next(clock); clock.IsZero() {
			return clock
		}
		if at := s.instant(clock); at.After(after) {
			return at.UTC()
		}
	}
}

// instant returns the time at which a clock in the zone shows what the given time shows in UTC.
func (s Schedule) instant(clock time.Time) time.Time {
	y, m, d := clock.Date()
	at := time.Date(y, m, d, clock.Hour(), clock.Minute(), clock.Second(), 0, s.zone)
	begin, end := at.ZoneBounds()
	switch shown := shows(at); {
	case shown.After(clock): // skipped, and at is after the change
		return begin
	case shown.Before(clock): // skipped, and at is before the change
		return end
	}
	if begin.IsZero() {
		return at
	}
	_, before := begin.Add(-time.Second).Zone()
	_, now := at.Zone()
	if first := at.Add(time.Duration(now-before) * time.Second); now < before && shows(first).Equal(clock) {
		return first
	}
	return at
}

// shows returns what the clock of t's zone shows at t, as a time in UTC.
func shows(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}
