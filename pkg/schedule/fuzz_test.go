package schedule_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/schedule"
)

// The next time of a schedule is later than the time before it, in every time zone.
func FuzzParse(f *testing.F) {
	f.Add("0 3 * * *", "Europe/Berlin", int64(1_790_000_000))
	f.Add("*/5 1-3 29 2 1", "America/Sao_Paulo", int64(0))
	f.Add("59 23 31 12 *", "Pacific/Apia", int64(1_325_000_000))
	f.Fuzz(func(t *testing.T, expression, zone string, at int64) {
		s, err := schedule.Parse(expression, zone)
		if err != nil || at < 0 || at > 1<<33 {
			return
		}
		from := time.Unix(at, 0)
		if next := s.Next(from); !next.IsZero() && !next.After(from) {
			t.Fatalf("after %s comes %s", from, next)
		}
	})
}
