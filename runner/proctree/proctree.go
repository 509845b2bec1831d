// Package proctree finds and ends processes: those of a session, the children of
// a process, and those that carry a mark in their environment. On Linux it
// reads /proc; elsewhere it knows process groups only, and says so.
//
// It also runs survivors: tools that must not die with their step. A tool that
// changes something knows what it has made and not saved yet; if it were killed
// with its step, a plan would later want to make all of it again.
//
// The step starts such a tool with RunSurvivor. When the step is killed, the
// kernel interrupts the tool, which then stops where it can, saves its state and
// ends. Its output is a pipe whose reading end the tool holds, too: it is not
// killed for writing to nobody. The agent, which sees the step's end, calls
// AwaitSurvivor: it empties the pipe, so that a full pipe does not block the
// tool, and waits for the tool's end, for as long as the lease allows. It throws
// away what it reads: only the step knew the secrets that have to be masked.
//
// Survivors take Linux. Elsewhere RunSurvivor starts nothing and AwaitSurvivor
// finds nothing.
package proctree

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
