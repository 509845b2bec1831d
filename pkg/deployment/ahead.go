package deployment

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/pkg/job"
)

// Next is a job that the deployment does not have yet, and will need unless something fails or a plan has no changes.
type Next struct {
	Component string
	Type      string // of the component
	Operation job.Operation
	Size      job.Size
	Role      string // that a run of an action declares
}

// Ahead returns the next jobs that no person must approve first, at most limit, in the order in which they can begin.
// It does not return jobs that exist: an agent can already claim those. An apply that may wait for a person is not
// returned, and neither is a job that follows it. A job in an image of its own is not returned: its step cannot start
// before the job is known.
func (d Deployment) Ahead(limit int) []Next {
	if d.State == Queued || d.State.Final() || d.Stop != "" {
		return nil
	}
	type ranked struct {
		Next
		rank int // how many jobs come before it, one after the other
	}
	var all []ranked
	doneAfter := map[string]int{} // for each component that will be done without a person: its number of remaining jobs and of those before them
	for i := range d.Nodes {
		n := &d.Nodes[i]
		rank, foreseen := 0, n.Run == nil || len(n.Run.Around) == 0 // a hook may have nothing to do
		for _, need := range n.Needs {
			after, ok := doneAfter[need]
			rank, foreseen = max(rank, after), foreseen && ok
		}
		next := func(apply bool) {
			if !n.OwnImage {
				all = append(all, ranked{Next{n.Component, n.Type, n.operation(apply), n.Size, n.role(apply)}, rank})
			}
			rank++
		}
		switch {
		case n.State.Done():
			rank = 0
		case n.State == Applying:
			rank = 1
		case n.State == Approved:
			next(true)
		case n.State == Planning, n.State == Pending && foreseen:
			if n.State == Planning {
				rank = 1
			} else {
				next(false)
			}
			if !d.PlanOnly && (n.Lost || d.Asks() == AskAlways) {
				continue // a plan with changes waits for a person
			}
			if !d.PlanOnly {
				next(true)
			}
		default:
			continue
		}
		doneAfter[n.Component] = rank
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	out := make([]Next, 0, min(limit, len(all)))
	for _, r := range all[:min(limit, len(all))] {
		out = append(out, r.Next)
	}
	return out
}

// role returns the role that the node declares for its next job; "" for that of the operation.
func (n *Node) role(apply bool) string {
	switch {
	case !apply || n.Destroy:
		return ""
	case n.Run != nil:
		return n.Run.Role
	}
	return n.Role
}
