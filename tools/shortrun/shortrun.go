// Package shortrun selects the cases of a short test run by the day. It is for tests
// whose cases differ little. A whole run runs all cases.
package shortrun

import (
	"cmp"
	"os"
	"strconv"
	"testing"
)

// DayEnv is the environment variable with the day, an integer from 0. The Makefile sets
// it to the day of the year. Without it the day is 0.
const DayEnv = "FAIRLEAD_TEST_DAY"

// Day returns the day that selects the cases of a short run. An invalid DayEnv fails the
// test.
func Day(t testing.TB) int {
	t.Helper()
	day, err := strconv.Atoi(cmp.Or(os.Getenv(DayEnv), "0"))
	if err != nil || day < 0 {
		t.Fatalf("%s=%q is not an integer of at least 0", DayEnv, os.Getenv(DayEnv))
	}
	return day
}

// OneOf returns all choices in a whole run and one choice in a short run. In a short run
// case n moves to the next choice each day, and case n+1 is one choice ahead of case n.
func OneOf[T any](t testing.TB, n int, choices ...T) []T {
	t.Helper()
	if !testing.Short() {
		return choices
	}
	i := (Day(t) + n) % len(choices)
	return choices[i : i+1]
}

// OneDayIn skips the test in a short run, except on one of so many days. Tests with another n run on another day. It is for
// slow tests of code that changes seldom; tools/testrun/skips.go lists them.
func OneDayIn(t testing.TB, days, n int) {
	t.Helper()
	if testing.Short() && (Day(t)+n)%days != 0 {
		t.Skipf("a short run has it on one day in %d; make test-all runs it", days)
	}
}
