//go:build race

package main

// raceEnabled reports whether the race detector, which uses memory, is active.
const raceEnabled = true
