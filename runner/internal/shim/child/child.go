// Package child implements the shim process. It imports very few packages. Its init function runs the
// shim as soon as these few packages are initialised, before the large packages of the clouds are. If a
// shim initialised the large packages too, it would need five times the CPU time and three times the
// memory. Each job has a shim.
package child

// Name is the first argument (argv[0]) of a shim. It must never change: an agent finds the steps that an
// earlier version started by this name.
const Name = "fairlead-keeper"

// Report is the file descriptor of the pipe to which a shim reports. Each report is a line with one of
// the constants below, a space, and a number or a message.
const Report = 3

const (
	Began  = "began"  // PID of the step
	Failed = "failed" // why the step did not start
	Ended  = "ended"  // wait status of the step
)
