//go:build linux && race

package faultstest

// raceFlags builds the programs as the test was built.
var raceFlags = []string{"-race"}
