package deployment_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// model is a caller of Apply that checks its guarantees without using its code. It creates a job for each command, ends
// jobs at random, and compares every command with the earlier events.
type model struct {
	t        *rapid.T
	d        deployment.Deployment
	jobs     int
	open     map[fairlead.JobID]deployment.Command
	ended    []deployment.JobEnded
	plan     map[string]deployment.JobEnded // by component: the plan that may be applied once
	approved map[string]bool                // by component: a person or auto-approve approved the plan in the field plan
	lost     map[string]bool
	canceled bool
}

func drawDeployment(t *rapid.T) *model {
	d := deployment.Deployment{
		ID: "dep_1", State: deployment.Queued, Kind: deployment.Deploy, Created: t0,
		PlanOnly: rapid.IntRange(0, 4).Draw(t, "plan only") == 0, AutoApprove: rapid.Bool().Draw(t, "auto-approve"),
		Parallelism: rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "parallelism"),
	}
	for i := range rapid.SampledFrom([]int{4, 3, 2, 1, 6, 0}).Draw(t, "components") {
		n := deployment.Node{Component: fmt.Sprintf("c%d", i), State: deployment.Pending, Destroy: rapid.IntRange(0, 3).Draw(t, "destroy") == 0}
		carried := true
		for k := range i {
			if rapid.IntRange(0, 2).Draw(t, "needs") == 0 {
				n.Needs = append(n.Needs, d.Nodes[k].Component)
				carried = carried && d.Nodes[k].State.Done()
			}
		}
		if carried && rapid.IntRange(0, 4).Draw(t, "done in the deployment that is retried") == 0 {
			n.State = rapid.SampledFrom([]deployment.NodeState{deployment.Applied, deployment.Unchanged}).Draw(t, "as")
		}
		d.Nodes = append(d.Nodes, n)
	}
	components := len(d.Nodes)
	for i := range rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "hooks") {
		run := &deployment.Run{Action: fmt.Sprintf("h%d", i), Trigger: rapid.SampledFrom([]deployment.Trigger{deployment.Before, deployment.After}).Draw(t, "trigger")}
		n := deployment.Node{Component: "actions." + run.Action, State: deployment.Pending, Run: run}
		for k := range components {
			if rapid.IntRange(0, 1).Draw(t, "around") == 0 {
				run.Around = append(run.Around, d.Nodes[k].Component)
			}
		}
		if run.Trigger == deployment.After {
			n.Needs = run.Around
		}
		if len(run.Around) > 0 {
			d.Nodes = append(d.Nodes, n)
		}
	}
	return &model{t: t, d: d, open: map[fairlead.JobID]deployment.Command{}, plan: map[string]deployment.JobEnded{},
		approved: map[string]bool{}, lost: map[string]bool{}}
}

// do applies e, checks the commands and creates the jobs. It reports whether e was allowed.
func (m *model) do(e deployment.Event) bool {
	was := m.d
	d, cmds, err := deployment.Apply(was, e, t0)
	if err != nil {
		if k := fairlead.KindOf(err); k != fairlead.KindConflict {
			m.t.Fatalf("%T returned an error of kind %s: %v", e, k, err)
		}
		return false
	}
	m.d = d
	if was.State.Final() && (len(cmds) > 0 || d.State != was.State) {
		m.t.Fatalf("%T changed a %s deployment to %s with %d commands, want no change", e, was.State, d.State, len(cmds))
	}
	for i, n := range was.Nodes {
		if n.State.Final() && d.Nodes[i].State != n.State {
			m.t.Fatalf("%T moved %s from the final state %s to %s", e, n.Component, n.State, d.Nodes[i].State)
		}
	}
	for _, c := range cmds {
		m.check(c)
		if c.Cancel != "" {
			continue
		}
		m.jobs++
		id := fairlead.JobID(fmt.Sprintf("job_%d", m.jobs))
		if m.d, cmds, err = deployment.Apply(m.d, deployment.JobStarted{Component: c.Component, Operation: c.Operation, Job: id}, t0); err != nil || len(cmds) > 0 {
			m.t.Fatalf("JobStarted for %s %s: commands %v, error %v", c.Operation, c.Component, cmds, err)
		}
		m.open[id] = c
	}
	m.consistent()
	return true
}

func (m *model) check(c deployment.Command) {
	if c.Cancel != "" {
		if _, ok := m.open[c.Cancel]; !ok || !m.canceled {
			m.t.Fatalf("command to cancel %s: active %t, deployment canceled %t", c.Cancel, ok, m.canceled)
		}
		return
	}
	n := m.d.Node(c.Component)
	if m.canceled {
		m.t.Fatalf("command to start %s %s after the cancel", c.Operation, c.Component)
	}
	for _, need := range n.Needs {
		if !m.d.Node(need).State.Done() {
			m.t.Fatalf("command to start %s %s, but its need %s is %s", c.Operation, c.Component, need, m.d.Node(need).State)
		}
	}
	for id, o := range m.open {
		if o.Component == c.Component {
			m.t.Fatalf("command to start %s %s, but %s is active", c.Operation, c.Component, id)
		}
	}
	if n.Run != nil {
		reached := func(name string) bool {
			s := m.d.Node(name).State
			return s != deployment.Pending && s != deployment.Planning && s != deployment.Awaiting && s != deployment.Unchanged
		}
		if m.lost[c.Component] || !slices.ContainsFunc(n.Run.Around, reached) {
			m.t.Fatalf("command to start %s of the hook %s, lost %t, around %v", c.Operation, c.Component, m.lost[c.Component], n.Run.Around)
		}
	}
	for _, h := range m.d.Nodes {
		if h.Run != nil && h.Run.Trigger == deployment.Before && slices.Contains(h.Run.Around, c.Component) && c.Operation.Mutates() && !h.State.Done() {
			m.t.Fatalf("command to start %s %s, but the hook %s before it is %s", c.Operation, c.Component, h.Component, h.State)
		}
	}
	if removes := c.Operation == job.OpDestroy || c.Operation == job.OpPlanDestroy; removes != n.Destroy {
		m.t.Fatalf("command to start %s for %s, whose Destroy is %t", c.Operation, c.Component, n.Destroy)
	}
	if !c.Operation.Mutates() {
		return
	}
	plan, ok := m.plan[c.Component]
	switch {
	case m.d.PlanOnly:
		m.t.Fatalf("command to apply %s in a plan-only deployment", c.Component)
	case !ok || c.PlanJob != plan.Job || c.Digest != plan.Digest:
		m.t.Fatalf("command for %s to apply plan %s of %s, want the latest unused plan %s of %s", c.Component, c.Digest, c.PlanJob, plan.Digest, plan.Job)
	case !m.approved[c.Component]:
		m.t.Fatalf("command to apply %s, but its plan was not approved", c.Component)
	}
	delete(m.plan, c.Component)
	m.approved[c.Component] = false
}

// consistent checks the deployment's state against its nodes and jobs.
func (m *model) consistent() {
	var working, waiting, pending, failed int
	limit := cmp.Or(m.d.Parallelism, deployment.Parallelism)
	for _, n := range m.d.Nodes {
		active := false
		for _, c := range m.open {
			active = active || c.Component == n.Component
		}
		switch n.State {
		case deployment.Planning, deployment.Applying, deployment.Reconciling:
			working++
			if !active {
				m.t.Fatalf("%s is %s, but has no active job", n.Component, n.State)
			}
			continue
		case deployment.Awaiting:
			waiting++
		case deployment.Pending, deployment.Approved:
			pending++
		case deployment.NodeFailed, deployment.NodeLost, deployment.NodeStopped:
			failed++
		case deployment.Skipped:
			if !m.d.PlanOnly {
				failed++
			}
		}
		if active {
			m.t.Fatalf("%s is %s, but has an active job", n.Component, n.State)
		}
	}
	if working > limit {
		m.t.Fatalf("%d components are active, the limit is %d", working, limit)
	}
	if m.d.State == deployment.Queued {
		return
	}
	for _, n := range m.d.Nodes {
		held := slices.ContainsFunc(m.d.Nodes, func(h deployment.Node) bool {
			return h.Run != nil && h.Run.Trigger == deployment.Before && slices.Contains(h.Run.Around, n.Component) && !h.State.Final()
		})
		if n.State == deployment.Approved && working < limit && !held && !m.canceled {
			m.t.Fatalf("%s is approved and waits, but only %d of %d are active", n.Component, working, limit)
		}
	}
	want := deployment.Succeeded
	switch {
	case m.canceled && working > 0:
		want = deployment.Canceling
	case m.canceled:
		want = deployment.Canceled
	case working > 0:
		want = deployment.Running
	case waiting > 0:
		want = deployment.Waiting
	case pending > 0:
		m.t.Fatalf("%d components are pending, and no event would change them", pending)
	case failed > 0:
		want = deployment.Failed
	}
	if m.d.State != want || want.Final() == m.d.Finished.IsZero() {
		m.t.Fatalf("the deployment is %s, finished at %s, want %s", m.d.State, m.d.Finished, want)
	}
}

func (m *model) approve(components ...string) {
	for _, n := range m.d.Nodes {
		all := len(components) == 0
		for _, c := range components {
			all = all || c == n.Component
		}
		if n.State == deployment.Awaiting && all {
			m.approved[n.Component] = true
		}
	}
	if !m.do(deployment.Approve{Components: components}) {
		for _, n := range m.d.Nodes { // the approval was refused as a whole
			m.approved[n.Component] = m.approved[n.Component] && n.State != deployment.Awaiting
		}
	}
}

// end ends one random active job in a random state.
func (m *model) end(mayLose bool) {
	ids := make([]fairlead.JobID, 0, len(m.open))
	for i := range m.jobs {
		if id := fairlead.JobID(fmt.Sprintf("job_%d", i+1)); m.open[id].Component != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(m.t, "job")
	c := m.open[id]
	delete(m.open, id)
	states := []job.State{job.Succeeded, job.Succeeded, job.Succeeded, job.Succeeded, job.Failed, job.Canceled}
	if c.Operation.Mutates() && mayLose {
		states = append(states, job.Lost, job.Lost)
	}
	e := deployment.JobEnded{Job: id, State: rapid.SampledFrom(states).Draw(m.t, "ends")}
	if !c.Operation.Mutates() && e.State == job.Succeeded {
		e.Digest, e.Changes = "sha256:"+string(id), &deployment.Changes{}
		if e.NoOp = rapid.IntRange(0, 3).Draw(m.t, "no-op") == 0; !e.NoOp || c.Operation == job.OpPlanRun {
			m.plan[c.Component] = e
			m.approved[c.Component] = m.d.AutoApprove && !m.lost[c.Component]
		}
	}
	if e.State == job.Lost {
		m.lost[c.Component] = true
	}
	m.ended = append(m.ended, e)
	m.do(e)
}

// step draws the next event at random and applies it. Events with a small number are more frequent, because rapid
// draws small numbers more often.
func (m *model) step() {
	switch rapid.IntRange(0, 19).Draw(m.t, "event") {
	case 14, 15:
		m.approve()
	case 16:
		if len(m.d.Nodes) > 0 {
			m.approve(rapid.SampledFrom(m.d.Nodes).Draw(m.t, "approved").Component)
		}
	case 17:
		if len(m.ended) > 0 {
			m.do(rapid.SampledFrom(m.ended).Draw(m.t, "reported again"))
		}
	case 18:
		m.do(deployment.JobEnded{Job: "job_foreign", State: job.Lost})
		m.do(deployment.Begin{})
	case 19:
		m.canceled = m.canceled || !m.d.State.Final()
		m.do(deployment.Cancel{})
	default:
		m.end(true)
	}
}

func TestInvariantsHoldForRandomEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDeployment(t)
		m.do(deployment.Begin{})
		for range rapid.IntRange(10, 60).Draw(t, "events") {
			m.step()
		}
		// From here on no apply is lost, every job ends, and a person approves or cancels. The deployment must end.
		if rapid.Bool().Draw(t, "cancels") && !m.d.State.Final() {
			m.canceled = true
			m.do(deployment.Cancel{})
		}
		for range 10 * (len(m.d.Nodes) + 1) {
			m.end(false)
			if m.d.State == deployment.Waiting {
				m.approve()
			}
		}
		if !m.d.State.Final() || len(m.open) > 0 {
			t.Fatalf("after all jobs ended the deployment is %s with %d active jobs", m.d.State, len(m.open))
		}
	})
}
