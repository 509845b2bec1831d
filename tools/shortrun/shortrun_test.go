package shortrun

import (
	"slices"
	"strconv"
	"testing"
)

// Every choice is selected on some day. Otherwise short runs would never test the choice.
func TestOneOfSelectsEveryChoiceOnSomeDay(t *testing.T) {
	choices := []string{"a", "b", "c"}
	for n := range 4 {
		var tried []string
		for day := range choices {
			t.Setenv(DayEnv, strconv.Itoa(day))
			got := OneOf(t, n, choices...)
			if !testing.Short() {
				if !slices.Equal(got, choices) {
					t.Fatalf("a whole run selects %q, want %q", got, choices)
				}
				continue
			}
			if len(got) != 1 {
				t.Fatalf("case %d selects %q on day %d, want one choice", n, got, day)
			}
			tried = append(tried, got...)
		}
		slices.Sort(tried)
		if testing.Short() && !slices.Equal(tried, choices) {
			t.Errorf("case %d selected %q in %d days, want %q", n, tried, len(choices), choices)
		}
	}
}
