package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

func writeDeployments(b *bytes.Buffer, root string) error {
	file := filepath.Join(root, "pkg", "deployment", "deployment.go")
	states, err := constants(file, "State")
	if err != nil {
		return err
	}
	nodes, err := constants(file, "NodeState")
	if err != nil {
		return err
	}
	w := &walk{seen: map[string]bool{}}
	for _, planOnly := range []bool{false, true} {
		for _, auto := range []bool{false, true} {
			for _, nodes := range [][]deployment.Node{
				{{Component: "first", State: deployment.Pending}, {Component: "second", State: deployment.Pending, Needs: []string{"first"}}},
				{{Component: "first", State: deployment.Applied}},
				{{Component: "first", State: deployment.Pending}, {Component: "second", State: deployment.Pending}},
			} {
				d := deployment.Deployment{ID: "dep", State: deployment.Queued, PlanOnly: planOnly, AutoApprove: auto, Parallelism: 1, Nodes: nodes}
				if err := w.visit(d); err != nil {
					return err
				}
			}
		}
	}

	b.WriteString("## Deployments\n\nA deployment is a graph of components, each planned, approved and applied in order. `deployment.Apply`\n" +
		"takes an event and returns the deployment after it and the jobs to start or cancel; deployment, jobs\n" +
		"and events are one commit. So a deployment has no process of its own that could crash: it is moved by\n" +
		"a person, or by the end of one of its jobs, and a job always ends (see above). What follows was found\n" +
		"by walking through every life of a deployment of two components, one at a time, whether one needs\n" +
		"the other or not, and of one that has nothing left to do.\n\n" +
		"| State | Meaning | Goes to |\n|---|---|---|\n")
	for _, s := range states {
		if deployment.State(s.Value).Final() {
			fmt.Fprintf(b, "| **`%s`** | %s | |\n", s.Value, s.Comment)
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", s.Value, s.Comment, w.next(w.deployments, s.Value))
	}

	b.WriteString("\n### Components in a deployment\n\n")
	d := newDiagram()
	order := func(s string) int {
		return slices.IndexFunc(nodes, func(c constant) bool { return c.Value == s })
	}
	slices.SortFunc(w.nodes, func(x, y move) int {
		return 1000*(order(x.from)-order(y.from)) + 10*(order(x.to)-order(y.to)) + strings.Compare(x.on, y.on)
	})
	d.edge("[*]", string(deployment.Pending), "")
	for _, m := range w.nodes {
		d.edge(m.from, m.to, "")
	}
	for _, s := range nodes {
		if deployment.NodeState(s.Value).Final() {
			d.edge(s.Value, "[*]", "")
		}
	}
	d.write(b)
	b.WriteString("\n| State | Meaning | What moves it on |\n|---|---|---|\n")
	for _, s := range nodes {
		name := "`" + s.Value + "`"
		if deployment.NodeState(s.Value).Final() {
			name = "**" + name + "**"
		}
		var on []string
		for _, m := range w.nodes {
			if m.from == s.Value {
				on = append(on, m.on+" → `"+m.to+"`")
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, s.Comment, strings.Join(on, "<br>"))
	}
	return nil
}

// move is a change of state that was seen.
type move struct{ from, on, to string }

// walk visits every deployment that events can make of the first one.
type walk struct {
	seen               map[string]bool
	deployments, nodes []move
}

func (w *walk) next(moves []move, from string) string {
	var to []string
	for _, m := range moves {
		if m.from == from {
			to = append(to, "`"+m.to+"`")
		}
	}
	slices.Sort(to)
	return strings.Join(slices.Compact(to), ", ")
}

func (w *walk) visit(d deployment.Deployment) error {
	d.Nodes = slices.Clone(d.Nodes)
	for i := range d.Nodes {
		// How often something happened before changes no transition but the last.
		d.Nodes[i].Past, d.Nodes[i].Replans = nil, 0
	}
	key, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if w.seen[string(key)] {
		return nil
	}
	w.seen[string(key)] = true
	for _, e := range possible(d) {
		after, cmds, err := deployment.Apply(d, e, time.Time{})
		if fairlead.KindOf(err) == fairlead.KindConflict {
			continue
		}
		if err != nil {
			return fmt.Errorf("walk through deployments: %T: %w", e, err)
		}
		w.saw(d, e, after)
		if err := w.carryOut(after, cmds); err != nil {
			return err
		}
	}
	return nil
}

// carryOut visits what comes of the commands: their jobs are made, or cannot be.
func (w *walk) carryOut(d deployment.Deployment, cmds []deployment.Command) error {
	for i, c := range cmds {
		if c.Cancel != "" {
			continue
		}
		for _, e := range []deployment.Event{
			deployment.JobStarted{Component: c.Component, Operation: c.Operation, Job: jobOf(c.Component, c.Operation)},
			deployment.Unplannable{Component: c.Component, Reason: "wrong"},
			deployment.Unplannable{Component: c.Component, Reason: "unknown", Skip: true},
		} {
			after, more, err := deployment.Apply(d, e, time.Time{})
			if err != nil {
				return fmt.Errorf("walk through deployments: %s %s: %w", c.Operation, c.Component, err)
			}
			w.saw(d, e, after)
			if err := w.carryOut(after, append(slices.Clone(cmds[i+1:]), more...)); err != nil {
				return err
			}
		}
		return nil
	}
	return w.visit(d)
}

func jobOf(component string, op job.Operation) fairlead.JobID {
	return fairlead.JobID(string(op) + " " + component)
}

// possible returns the events that may come next.
func possible(d deployment.Deployment) []deployment.Event {
	all := []deployment.Event{deployment.Begin{}, deployment.Approve{}, deployment.Cancel{}}
	for _, n := range d.Nodes {
		switch n.State {
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
			all = append(all, deployment.JobEnded{Job: n.ApplyJob, State: job.Failed, Reason: job.ReasonPlanElsewhere})
		}
	}
	return all
}

// saw notes what an event changed.
func (w *walk) saw(before deployment.Deployment, e deployment.Event, after deployment.Deployment) {
	note := func(moves *[]move, m move) {
		if m.from != m.to && !slices.Contains(*moves, m) {
			*moves = append(*moves, m)
		}
	}
	note(&w.deployments, move{from: string(before.State), to: string(after.State)})
	for i, n := range before.Nodes {
		note(&w.nodes, move{string(n.State), describe(before, n, e, after.Nodes[i].State), string(after.Nodes[i].State)})
	}
}

// describe says what an event means for one node that it takes to another state.
func describe(d deployment.Deployment, n deployment.Node, e deployment.Event, to deployment.NodeState) string {
	lost := ""
	if n.Lost && to == deployment.NodeLost {
		lost = ", after a loss"
	}
	switch e := e.(type) {
	case deployment.Begin:
		return "the deployment begins"
	case deployment.Approve:
		if to == deployment.Approved {
			return "a person approves, and as many are at work as may be"
		}
		return "a person approves"
	case deployment.Cancel:
		return "a person cancels" + lost
	case deployment.Unplannable:
		if e.Component == n.Component && e.Skip && !n.Lost && n.State == deployment.Planning {
			return "no job can be made: a value is not known"
		}
		if e.Component == n.Component {
			return "no job can be made" + lost
		}
	case deployment.JobEnded:
		if n.State == deployment.Applying && e.Job == n.ApplyJob {
			if to == deployment.Planning || to == deployment.Reconciling && e.Reason == job.ReasonPlanElsewhere {
				return "the plan is good for another place only"
			}
			return "the job " + ended(e.State) + meanwhile(d, e.State == job.Lost)
		}
		if n.State == deployment.Pending || e.Job != n.PlanJob {
			break // another's job
		}
		switch {
		case e.State != job.Succeeded:
			return "the plan job " + ended(e.State)
		case e.NoOp:
			return "the plan finds nothing to do"
		case d.PlanOnly:
			return "the plan finds changes, plan-only"
		case d.Stop == "" && d.AutoApprove && n.State == deployment.Planning:
			return "the plan finds changes, auto-approved"
		}
		return "the plan finds changes" + meanwhile(d, true)
	}
	if to == deployment.Skipped {
		return "what it needs did not succeed"
	}
	if n.State == deployment.Pending && len(n.Needs) > 0 {
		return "what it needs is done"
	}
	return "fewer are at work"
}

func ended(s job.State) string {
	switch s {
	case job.Succeeded:
		return "succeeded"
	case job.Failed:
		return "failed"
	}
	return "was " + string(s)
}

// meanwhile says that the deployment was canceled, where that matters.
func meanwhile(d deployment.Deployment, matters bool) string {
	if d.Stop != "" && matters {
		return ", canceled meanwhile"
	}
	return ""
}
