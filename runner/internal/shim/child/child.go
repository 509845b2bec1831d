// Package child is what a shim does. It imports next to nothing: a process that
// was started as a shim begins as soon as these few packages are initialised,
// and never comes to those of the clouds. With them it takes five times the CPU
// and three times the memory, once for each job.
package child

// Name is what a shim is called by: its first argument. It is not renamed: an agent
// looks by it for the steps of an earlier version's.
const Name = "fairlead-keeper"

// Report is the descriptor of the pipe on which a shim says what becomes of
// the step, a line each: one of the constants, and a number or a message.
const Report = 3

const (
	Began  = "began"  // process number of the step
	Failed = "failed" // why there is no step
	Ended  = "ended"  // wait status of the step
)
