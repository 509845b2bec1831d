//go:build linux && race

package e2e

// raceFlags are the build flags of the programs: with the race detector, as for the test.
var raceFlags = []string{"-race"}
