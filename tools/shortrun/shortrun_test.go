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

// A test of one day in three runs on one of three successive days, and in each whole run.
func TestOneDayInRunsEveryTestOnSomeDay(t *testing.T) {
	for n := range 3 {
		ran := 0
		for day := range 3 {
			t.Setenv(DayEnv, strconv.Itoa(day))
			t.Run("test", func(t *testing.T) {
				defer func() {
					if !t.Skipped() {
						ran++
					}
				}()
				OneDayIn(t, 3, n)
			})
		}
		if want := map[bool]int{true: 1, false: 3}[testing.Short()]; ran != want {
			t.Errorf("test %d ran on %d of 3 days, want %d", n, ran, want)
		}
	}
}
