package schedule_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/schedule"
)

// Each row lists the times after a start, as a clock in the zone shows them, with its offset. The changes of 2026: New
// York on March 8 and November 1, Berlin on March 29 and October 25, Lord Howe (by half an hour) on April 5 and October 4.
func TestTimesOverChangesOfTheClock(t *testing.T) {
	for name, c := range map[string]struct{ cron, zone, after, want string }{
		"each night":                               {"0 3 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", "28T03:00+01:00 29T03:00+02:00 30T03:00+02:00"},
		"a skipped time is moved to its end":       {"30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", "28T02:30+01:00 29T03:00+02:00 30T02:30+02:00"},
		"several skipped times are one":            {"*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "29T03:00+02:00 30T02:00+02:00 30T02:20+02:00"},
		"a time that is shown twice runs once":     {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "25T02:30+02:00 26T02:30+01:00 27T02:30+01:00"},
		"after its first time it does not return":  {"30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", "26T02:30+01:00 27T02:30+01:00"},
		"between its two times it does not return": {"30 2 * * *", "Europe/Berlin", "2026-10-25T01:15:00Z", "26T02:30+01:00 27T02:30+01:00"},
		"every hour has no gap in autumn":          {"0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", "25T02:00+02:00 25T02:00+01:00 25T03:00+01:00"},
		"every hour has no gap in spring":          {"0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", "29T01:00+01:00 29T03:00+02:00 29T04:00+02:00"},
		"another zone changes on another day":      {"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "08T03:00-04:00 09T02:30-04:00"},
		"a zone west of Greenwich in autumn":       {"30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", "01T01:30-04:00 02T01:30-05:00"},
		"a change by half an hour, in spring":      {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "04T02:30+11:00 05T02:15+11:00"},
		"a change by half an hour, in autumn":      {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "05T01:45+11:00 06T01:45+10:30"},
		"no zone is UTC":                           {"30 2 * * *", "", "2026-03-28T12:00:00Z", "29T02:30Z 30T02:30Z"},
		"the time itself is not after itself":      {"0 3 * * *", "UTC", "2026-03-28T03:00:00Z", "29T03:00Z"},
		"a leap day":                               {"0 0 29 2 *", "Europe/Berlin", "2026-01-01T00:00:00Z", "29T00:00+01:00 29T00:00+01:00"},
		"weekdays":                                 {"0 9 * * MON-FRI", "Europe/Berlin", "2026-11-27T12:00:00Z", "30T09:00+01:00 01T09:00+01:00"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := schedule.Parse(c.cron, c.zone)
			if err != nil {
				t.Fatal(err)
			}
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for range strings.Fields(c.want) {
				next := s.Next(at)
				if !next.After(at) || next.Location() != time.UTC {
					t.Fatalf("the time after %s is %s", at, next)
				}
				at = next
				got = append(got, at.In(zone).Format("02T15:04Z07:00"))
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("the times are\n     %s\nwant %s", text, c.want)
			}
		})
	}
}

// Next over a year, minute by minute, agrees with itself: between two times there is no other. A time that depends on
// where the search begins would be missed or run twice.
func TestNextDoesNotDependOnTheStart(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"} {
		s, err := schedule.Parse("30 1,2 * * *", zone)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		next := s.Next(at)
		for end := at.AddDate(1, 0, 0); at.Before(end); at = at.Add(13 * time.Minute) {
			if !at.Before(next) {
				next = s.Next(next)
			}
			if got := s.Next(at); !got.Equal(next) {
				t.Fatalf("%s: the time after %s is %s, but a search that began earlier found %s", zone, at, got, next)
			}
		}
	}
}

func TestParseRefusesWhatHasNoTimes(t *testing.T) {
	for name, c := range map[string]struct {
		cron, zone string
		isZone     bool
	}{
		"six fields":                        {"0 0 3 * * *", "", false},
		"four fields":                       {"3 * * *", "", false},
		"no expression":                     {"", "", false},
		"a minute that does not exist":      {"60 3 * * *", "", false},
		"a name that is no field":           {"@daily", "", false},
		"an interval":                       {"@every 1h", "", false},
		"a zone inside the expression":      {"CRON_TZ=UTC 0 3 * * *", "", false},
		"a day that no year has":            {"0 3 30 2 *", "", false},
		"a zone that does not exist":        {"0 3 * * *", "Europe/Atlantis", true},
		"the zone of the machine":           {"0 3 * * *", "Local", true},
		"a zone that is a path of the disk": {"0 3 * * *", "../etc/passwd", true},
	} {
		if _, err := schedule.Parse(c.cron, c.zone); err == nil || errors.Is(err, schedule.ErrZone) != c.isZone {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestZeroScheduleHasNoTimes(t *testing.T) {
	if at := (schedule.Schedule{}).Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); !at.IsZero() {
		t.Errorf("the next time is %s", at)
	}
}
