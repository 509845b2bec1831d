// Package proctree finds and kills processes: the processes of a session, the descendants of a
// process, and the processes with a mark in their environment. On Linux it reads /proc. On other
// systems it knows only process groups. Each function states what it does on other systems.
//
// It also runs survivors: tools that must not die with their step. Only the tool knows the resources
// that it made and has not saved in its state yet. If it were killed with its step, a later plan
// would make them again.
//
// The step starts such a tool with RunSurvivor. When the step is killed, the kernel interrupts the
// tool, which then stops where it can, saves its state and ends. The tool's output is a pipe whose
// read end the tool holds too, so a write does not kill the tool after the step has died. The agent
// sees the step's end and calls AwaitSurvivor. AwaitSurvivor drains the pipe, so that a full pipe does
// not block the tool, and waits for the tool's end as long as the lease allows. It discards the
// output: only the step knew the secrets to redact.
//
// Survivors need Linux. On other systems RunSurvivor panics and AwaitSurvivor finds nothing.
package proctree

import "time"

// Info is one process.
type Info struct {
	PID     int
	Parent  int
	Group   int
	Session int
	State   byte   // as in /proc: 'Z' is a zombie
	Start   uint64 // clock ticks since boot; distinguishes two processes with the same PID
}

// killPause is the pause between two kills of processes that have not ended.
const killPause = 2 * time.Millisecond
