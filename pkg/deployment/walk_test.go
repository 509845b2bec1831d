package deployment_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// move is a transition between two states.
type move struct {
	From, On, To string
	If           []string // further conditions of the transition: the smallest set that the walk found
	Label        string   // the label of the diagram's edge
}

// walk starts with small deployments and visits every deployment that events can produce from them.
type walk struct {
	seen               map[string]bool
	deployments, nodes []move
}

func walked() (*walk, error) {
	w := &walk{seen: map[string]bool{}}
	for i := range 4 {
		for _, nodes := range [][]deployment.Node{
			{{Component: "first", State: deployment.Pending}, {Component: "second", State: deployment.Pending, Needs: []string{"first"}}},
			{{Component: "first", State: deployment.Applied}},
			{{Component: "first", State: deployment.Pending}, {Component: "second", State: deployment.Pending}},
			{{Component: "first", State: deployment.Pending}, {Component: "actions.second", State: deployment.Pending, Needs: []string{"first"},
				Run: &deployment.Run{Action: "second", Trigger: deployment.After, Around: []string{"first"}}}},
			{{Component: "first", State: deployment.Pending}, {Component: "actions.second", State: deployment.Pending,
				Run: &deployment.Run{Action: "second", Trigger: deployment.Before, Around: []string{"first"}}}},
			{{Component: "actions.first", State: deployment.Pending, Run: &deployment.Run{Action: "first", Trigger: deployment.Manual}}},
		} {
			d := deployment.Deployment{ID: "dep", State: deployment.Queued, PlanOnly: i&1 > 0, AutoApprove: i&2 > 0, Parallelism: 1, Nodes: nodes}
			if err := w.visit(d); err != nil {
				return nil, fmt.Errorf("walk deployments: %w", err)
			}
		}
	}
	return w, nil
}

func (w *walk) visit(d deployment.Deployment) error {
	d.Nodes = slices.Clone(d.Nodes)
	for i := range d.Nodes {
		// These counts do not change transitions, except at their limits.
		d.Nodes[i].Past, d.Nodes[i].Replans = nil, 0
	}
	key, err := json.Marshal(d)
	if err != nil || w.seen[string(key)] {
		return err
	}
	w.seen[string(key)] = true
	for _, e := range possible(d) {
		if _, _, err := deployment.Apply(d, e, when(e)); fairlead.KindOf(err) == fairlead.KindConflict {
			continue
		}
		if err := w.apply(d, e, nil); err != nil {
			return err
		}
	}
	return nil
}

// apply visits the results of the event and of the commands in the parameter left. For each command it visits the
// result of a created job, the results of Unplannable with and without Skip, and that of UpToDate.
func (w *walk) apply(d deployment.Deployment, e deployment.Event, left []deployment.Command) error {
	after, cmds, err := deployment.Apply(d, e, when(e))
	if err != nil {
		return fmt.Errorf("%T: %w", e, err)
	}
	w.saw(d, e, after)
	cmds = slices.DeleteFunc(slices.Concat(left, cmds), func(c deployment.Command) bool { return c.Cancel != "" })
	if len(cmds) == 0 {
		return w.visit(after)
	}
	c := cmds[0]
	follow := []deployment.Event{
		deployment.JobStarted{Component: c.Component, Operation: c.Operation, Job: fairlead.JobID(string(c.Operation) + " " + c.Component)},
		deployment.Unplannable{Component: c.Component, Reason: fairlead.ReasonVarsTooLarge},
		deployment.Unplannable{Component: c.Component, Reason: fairlead.ReasonNeedsOutputs, Skip: true},
	}
	if n := after.Node(c.Component); n.State == deployment.Planning && n.MayBeUpToDate() {
		follow = append(follow, deployment.UpToDate{Component: c.Component})
	}
	for _, e := range follow {
		if err := w.apply(after, e, cmds[1:]); err != nil {
			return err
		}
	}
	return nil
}

// when returns the time of an event. No time passes in the walk, except that plans expire.
func when(e deployment.Event) time.Time {
	if _, ok := e.(deployment.Expire); ok {
		return t0.Add(deployment.PlansExpire)
	}
	return t0
}

// possible returns the events that can occur next.
func possible(d deployment.Deployment) []deployment.Event {
	all := []deployment.Event{deployment.Begin{}, deployment.Approve{}, deployment.Cancel{}}
	for _, n := range d.Nodes {
		switch n.State {
		case deployment.Awaiting, deployment.Approved:
			all = append(all, deployment.Expire{})
		case deployment.Planning, deployment.Reconciling:
			all = append(all,
				deployment.JobEnded{Job: n.PlanJob, State: job.Succeeded, Digest: "sha256:1"},
				deployment.JobEnded{Job: n.PlanJob, State: job.Succeeded, NoOp: true},
				deployment.JobEnded{Job: n.PlanJob, State: job.Failed},
				deployment.JobEnded{Job: n.PlanJob, State: job.Canceled})
		case deployment.Applying:
			for _, s := range []job.State{job.Succeeded, job.Failed, job.Canceled, job.Lost} {
				all = append(all, deployment.JobEnded{Job: n.ApplyJob, State: s})
			}
			all = append(all, deployment.JobEnded{Job: n.ApplyJob, State: job.Failed, Reason: fairlead.ReasonPlanElsewhere})
		}
	}
	return all
}

// saw records the transitions that an event caused.
func (w *walk) saw(before deployment.Deployment, e deployment.Event, after deployment.Deployment) {
	note := func(moves []move, m move) []move {
		same := func(k move) bool { return k.From == m.From && k.On == m.On && k.To == m.To }
		switch i := slices.IndexFunc(moves, same); {
		case m.From == m.To:
		case i < 0:
			moves = append(moves, m)
		case len(m.If) < len(moves[i].If):
			moves[i] = m
		}
		return moves
	}
	w.deployments = note(w.deployments, move{From: string(before.State), To: string(after.State)})
	for i, n := range before.Nodes {
		to := after.Nodes[i].State
		w.nodes = note(w.nodes, move{From: string(n.State), On: cause(n, e, to), To: string(to), If: conditions(before, after, n)})
	}
}

// conditions returns the conditions, other than the event, on which a move of the node may depend.
func conditions(d, after deployment.Deployment, n deployment.Node) (hold []string) {
	full := slices.ContainsFunc(after.Nodes, func(o deployment.Node) bool {
		return o.Component != n.Component && (o.State == deployment.Planning || o.State == deployment.Applying || o.State == deployment.Reconciling)
	})
	for _, c := range []struct {
		text  string
		holds bool
	}{
		{"plan-only", d.PlanOnly}, {"auto-approved", d.AutoApprove}, {"after a loss", n.Lost},
		{"after a cancel", d.Stop != ""}, {"at the parallelism limit", full},
	} {
		if c.holds {
			hold = append(hold, c.text)
		}
	}
	return hold
}

// cause describes an event that moves the node n to the state given by the parameter to.
func cause(n deployment.Node, e deployment.Event, to deployment.NodeState) string {
	switch e := e.(type) {
	case deployment.Begin:
		return "the deployment begins"
	case deployment.Approve:
		return "a person approves"
	case deployment.Cancel:
		return "a person cancels"
	case deployment.Expire:
		if n.State != deployment.Pending {
			return "its plan expires"
		}
	case deployment.UpToDate:
		if e.Component == n.Component {
			return "nothing has changed since its last deployment"
		}
	case deployment.Unplannable:
		switch {
		case e.Component == n.Component && e.Skip:
			return "no job can be created: a value is not known"
		case e.Component == n.Component:
			return "no job can be created"
		}
	case deployment.JobEnded:
		ended := map[job.State]string{job.Succeeded: "succeeded", job.Failed: "failed", job.Canceled: "was canceled", job.Lost: "was lost"}[e.State]
		switch {
		case n.State == deployment.Applying && e.Job == n.ApplyJob && e.Reason == fairlead.ReasonPlanElsewhere:
			return "the plan was made at another place"
		case n.State == deployment.Applying && e.Job == n.ApplyJob && n.Run != nil && e.State == job.Lost:
			return "the run of the action was lost"
		case n.State == deployment.Applying && e.Job == n.ApplyJob:
			return "the job " + ended
		case e.Job != n.PlanJob: // the job of another node
		case e.State != job.Succeeded:
			return "the plan job " + ended
		case n.Run != nil:
			return "the plan of the run is made"
		case e.NoOp:
			return "the plan finds nothing to do"
		default:
			return "the plan finds changes"
		}
	}
	switch {
	case to == deployment.Skipped && n.State == deployment.Approved:
		return "an action that runs before it did not succeed"
	case to == deployment.Unchanged:
		return "the components around the action have no changes"
	case n.State == deployment.Pending && n.Run != nil && n.Run.Trigger == deployment.Before && to == deployment.Planning:
		return "a component that the action runs before is approved"
	case n.State == deployment.Approved && n.Run == nil:
		return "the parallelism limit permits it, and the actions before it are done"
	case to == deployment.Skipped:
		return "a component that it needs did not succeed"
	case n.State == deployment.Pending && len(n.Needs) > 0:
		return "the components that it needs are done"
	}
	return "the parallelism limit permits it"
}
