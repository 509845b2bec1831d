package proctree

// survivorFile, in the attempt's workspace, names the tool at work.
const survivorFile = "survivor.json"

// survivor is what AwaitSurvivor needs to know of the tool.
type survivor struct {
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
