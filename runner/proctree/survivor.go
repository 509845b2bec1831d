package proctree

// survivorFile is a file of the attempt's workspace that identifies the running tool.
const survivorFile = "survivor.json"

// survivor identifies the process of a tool.
type survivor struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // as Info.Start; detects another process with the same PID
}

// Outcome is the end of a tool whose step has died.
type Outcome int

// The outcomes.
const (
	None    Outcome = iota // no tool runs
	Ended                  // the tool ended by itself while AwaitSurvivor waited
	Working                // the tool still ran when the context ended
)
