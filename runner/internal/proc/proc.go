// Package proc finds and ends processes: those of a session, the children of
// a process, and those that carry a mark in their environment. On Linux it
// reads /proc; elsewhere it knows process groups only, and says so.
package proc

import "time"

// Info is one process.
type Info struct {
	PID     int
	Parent  int
	Group   int
	Session int
	State   byte   // as in /proc: 'Z' is a zombie
	Start   uint64 // clock ticks since boot: tells two processes with one PID apart
}

// gone is how long a killed process is waited for before it is killed again.
const gone = 2 * time.Millisecond
