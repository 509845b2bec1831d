// Package survivor runs a tool that must not die with its step. A tool that
// changes something knows what it has made and not saved yet; if it were killed
// with its step, a plan would later want to make all of it again.
//
// The step runs the tool with Run. When the step is killed, the kernel
// interrupts the tool, which then stops where it can, saves its state and ends.
// Its output is a pipe whose reading end the tool holds, too: it is not killed
// for writing to nobody. The agent, which sees the step's end, calls Await: it
// empties the pipe, so that the tool is not held up by a full one, and waits
// for the tool's end, for as long as the lease allows. What it reads it throws
// away: the secrets that would have to be masked were known to the step alone.
//
// All of this takes Linux. Elsewhere Run starts nothing and Await finds nothing.
package survivor

// recordFile, in the attempt's workspace, names the tool at work.
const recordFile = "survivor.json"

// record is what Await needs to know of the tool.
type record struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // guards against another process of the same number
}

// Outcome is what became of a tool whose step has died.
type Outcome int

// The outcomes.
const (
	None    Outcome = iota // no such tool is at work (any more)
	Ended                  // it ended by itself
	Working                // it was still at work when the time was over
)
