package view

import "slices"

// AfterRestore is the result of `ops restore`.
type AfterRestore struct {
	Generation  int64 `json:"generation"`
	Installs    int   `json:"installs"`
	Components  int   `json:"components"`  // marked as unknown
	Deployments int   `json:"deployments"` // canceled

	Table  string `json:"table,omitempty"`  // on AWS
	Queues int    `json:"queues,omitempty"` // of runners, on AWS
	Blobs  int    `json:"blobs,omitempty"`  // that were deleted after the backup and exist again, on AWS

	// Lost has the components whose state or values no bucket has, as install/component.
	Lost []string `json:"lost,omitempty"`
}

// JSON returns the AfterRestore.
func (r AfterRestore) JSON() any { return r }

// Human writes what changed and what to do next.
func (r AfterRestore) Human(p *Page) {
	p.Line("%s The restored table has generation %d", Styled(p.Style.Good("✓")), r.Generation)
	p.Line("  %d installs, %d components marked as unknown, %d deployments canceled", r.Installs, r.Components, r.Deployments)
	next := "Start the server."
	if r.Table != "" {
		p.Line("  %d queues of runners exist, %d deleted blobs exist again", r.Queues, r.Blobs)
		for _, component := range r.Lost {
			p.Line("  No bucket has the state or the values of %s. If the control plane keeps its state, push one with `fairlead install push-state`.", component)
		}
		next = "Run `make deploy TABLE=" + r.Table + "`, which lets the functions serve the table."
	}
	p.Line("  %s Then run `fairlead install deploy NAME --plan-only` for each install.", next)
}

// Replayed lists the dead letters that `ops replay` handled.
type Replayed []DeadLetter

// DeadLetter is a message that a function gave up.
type DeadLetter struct {
	Queue   string `json:"queue"`
	Message string `json:"message"`          // identifier of the message in SQS
	Outcome string `json:"outcome"`          // replayed, failed, expired or foreign
	Target  string `json:"target,omitempty"` // ARN of the function or queue
	Detail  string `json:"detail,omitempty"` // why it was not replayed
}

// Left returns how many messages were not replayed.
func (r Replayed) Left() int {
	n := 0
	for _, m := range r {
		if m.Outcome != "replayed" {
			n++
		}
	}
	return n
}

// JSON returns an array of DeadLetter.
func (r Replayed) JSON() any { return array(r) }

// Human writes the number of replayed messages, and each message that was not replayed.
func (r Replayed) Human(p *Page) {
	left := r.Left()
	p.Line("%d dead letters replayed, %d not replayed", len(r)-left, left)
	if left == 0 {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(r), func(m DeadLetter) bool { return m.Outcome == "replayed" })
	table(p, []string{"QUEUE", "MESSAGE", "OUTCOME", "DETAIL"}, kept, func(m DeadLetter) []string {
		return []string{m.Queue, m.Message, m.Outcome, m.Detail}
	})
}
