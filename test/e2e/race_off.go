//go:build linux && !race

package e2e

// raceFlags builds the programs as the test was built.
var raceFlags []string
