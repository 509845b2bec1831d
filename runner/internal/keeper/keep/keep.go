// Package keep is what a keeper does. It imports next to nothing: a process that
// was started as a keeper begins as soon as these few packages are initialised,
// and never comes to those of the clouds. With them it takes five times the CPU
// and three times the memory, once for each job.
package keep

// Name is what a keeper is called by: its first argument.
const Name = "fairlead-keeper"

// Report is the descriptor of the pipe on which a keeper says what becomes of
// the step, a line each: one of the constants, and a number or a message.
const Report = 3

const (
	Began  = "began"  // process number of the step
	Failed = "failed" // why there is no step
	Ended  = "ended"  // wait status of the step
)
