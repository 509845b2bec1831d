// Package shortrun chooses what a short test run tries today and what it leaves to
// other days. It is for tests whose cases differ in little: a whole run tries all.
package shortrun

import (
	"cmp"
	"os"
	"strconv"
	"testing"
)

// DayEnv is the environment variable with the day, a count of days from 0 on. The
// Makefile sets it to the day of the year. Without it the day is 0.
const DayEnv = "FAIRLEAD_TEST_DAY"

// Day returns the day that a short run rotates by.
func Day(t testing.TB) int {
	t.Helper()
	day, err := strconv.Atoi(cmp.Or(os.Getenv(DayEnv), "0"))
	if err != nil || day < 0 {
		t.Fatalf("%s=%q is no count of days", DayEnv, os.Getenv(DayEnv))
	}
	return day
}

// OneOf returns all the choices in a whole run, and one of them in a short run:
// case n takes the next choice each day, and case n+1 is one choice ahead of it.
func OneOf[T any](t testing.TB, n int, choices ...T) []T {
	t.Helper()
	if !testing.Short() {
		return choices
	}
	i := (Day(t) + n) % len(choices)
	return choices[i : i+1]
}
