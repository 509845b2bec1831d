package shortrun

import (
	"slices"
	"strconv"
	"testing"
)

// A choice that no day takes would never be tried by the run that people wait for.
func TestEveryCaseTriesEveryChoiceWithinSomeDays(t *testing.T) {
	choices := []string{"a", "b", "c"}
	for n := range 4 {
		var tried []string
		for day := range choices {
			t.Setenv(DayEnv, strconv.Itoa(day))
			got := OneOf(t, n, choices...)
			if !testing.Short() {
				if !slices.Equal(got, choices) {
					t.Fatalf("a whole run tries %q, want %q", got, choices)
				}
				continue
			}
			if len(got) != 1 {
				t.Fatalf("day %d of case %d tries %q, want one choice", day, n, got)
			}
			tried = append(tried, got...)
		}
		slices.Sort(tried)
		if testing.Short() && !slices.Equal(tried, choices) {
			t.Errorf("case %d tried %q in %d days", n, tried, len(choices))
		}
	}
}
