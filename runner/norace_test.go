//go:build !race

package main

// raceEnabled reports whether the race detector is active. The race detector uses memory.
const raceEnabled = false
