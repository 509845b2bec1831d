//go:build !race

package main

// raceEnabled says that the race detector, which takes memory, is in.
const raceEnabled = false
