package deployment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// Event moves a deployment. It is one of Begin, JobStarted, JobEnded,
// Unplannable, Approve and Cancel.
type Event interface{ event() }

// Begin says that the install is free for this deployment.
type Begin struct{}

// JobStarted names the job that the caller made for a command.
type JobStarted struct {
	Component string
	Operation job.Operation
	Job       fairlead.JobID
}

// JobEnded says how a job of the deployment ended.
type JobEnded struct {
	Job     fairlead.JobID
	State   job.State // final
	Reason  fairlead.Reason
	Message string
	NoOp    bool     // of plans
	Changes *Changes // of plans
	Digest  string   // of plans
}

// Unplannable says that no job can be made for a command, because a value that
// the component needs is not known (Skip) or is wrong. It is mostly a plan's;
// an apply's when inputs changed while the plan waited for approval.
type Unplannable struct {
	Component string
	Skip      bool
	Reason    fairlead.Reason
	Message   string
}

// Approve lets the plans of these components be carried out; of all that wait
// when none is named. Plans holds, by component, the digest of the plan that
// was looked at: one that has been replaced since is not approved.
type Approve struct {
	Components []string
	Plans      map[string]string
	By         fairlead.Actor
}

// Cancel stops what runs and starts nothing more.
type Cancel struct {
	Reason fairlead.Reason
	By     fairlead.Actor
}

func (Begin) event()       {}
func (JobStarted) event()  {}
func (JobEnded) event()    {}
func (Unplannable) event() {}
func (Approve) event()     {}
func (Cancel) event()      {}

// Apply returns the deployment after the event, and what the caller must do.
// d is not changed. An event that the deployment does not allow is a
// *fairlead.Error of KindConflict, one about a component that it does not have
// of KindNotFound; any other error is a mistake of the caller's.
func Apply(d Deployment, e Event, at time.Time) (Deployment, []Command, error) {
	d = d.clone()
	var cmds []Command
	var err error
	switch e := e.(type) {
	case Begin:
		if d.State != Queued {
			return d, nil, refuse(d, "begin")
		}
		d.State, d.Began = Running, at
	case JobStarted:
		err = jobStarted(&d, e)
	case JobEnded:
		cmds, err = jobEnded(&d, e)
	case Unplannable:
		err = unplannable(&d, e)
	case Approve:
		err = approve(&d, e)
	case Cancel:
		cmds, err = cancel(&d, e)
	}
	if err != nil {
		return d, nil, err
	}
	cmds = append(cmds, advance(&d)...)
	derive(&d, at)
	return d, cmds, nil
}

func refuse(d Deployment, verb string) error {
	return fairlead.Conflict(fairlead.CodeDeploymentState, "deployment %s is %s: it cannot %s", d.ID, d.State, verb)
}

// jobStarted refuses a job that was made for a node which does not wait for
// one. The caller makes both in one commit, so only a mistake of its own can
// cause that, and must not be committed.
func jobStarted(d *Deployment, e JobStarted) error {
	n := d.Node(e.Component)
	if n == nil {
		return fmt.Errorf("deployment %s has no component %q", d.ID, e.Component)
	}
	switch {
	case e.Job != "" && (n.State == Planning || n.State == Reconciling) && n.PlanJob == "" && e.Operation == n.operation(false):
		n.PlanJob = e.Job
	case e.Job != "" && n.State == Applying && n.ApplyJob == "" && e.Operation == n.operation(true):
		n.ApplyJob = e.Job
	default:
		return fmt.Errorf("deployment %s: component %s is %s and waits for no %s job", d.ID, n.Component, n.State, e.Operation)
	}
	return nil
}

// maxPast is how many past jobs a node remembers: each is a loss that a person
// has approved to go on from.
const maxPast = 10

// past remembers a job that is about to be followed by another of its kind:
// the log of a lost apply is what a person needs later.
func (n *Node) past(id fairlead.JobID) {
	if id == "" {
		return
	}
	n.Past = append(slices.Clone(n.Past), id)
	if len(n.Past) > maxPast {
		n.Past = n.Past[len(n.Past)-maxPast:]
	}
}

func jobEnded(d *Deployment, e JobEnded) ([]Command, error) {
	if e.Job == "" || !e.State.Final() {
		return nil, fmt.Errorf("deployment %s: job %q has not ended, it is %q", d.ID, e.Job, e.State)
	}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		switch {
		case e.Job == n.PlanJob && (n.State == Planning || n.State == Reconciling):
			return planEnded(d, n, e), nil
		case e.Job == n.ApplyJob && n.State == Applying:
			return applyEnded(d, n, e), nil
		}
	}
	return nil, nil // it was told twice, or is another deployment's
}

// plan puts the node to work on a new plan, in state s. What an older plan
// found, and its job, count no longer.
func (n *Node) plan(s NodeState) Command {
	n.past(n.PlanJob)
	n.State, n.PlanJob, n.Digest, n.Changes, n.Approved = s, "", "", nil, fairlead.Actor{}
	return Command{Component: n.Component, Operation: n.operation(false)}
}

func planEnded(d *Deployment, n *Node, e JobEnded) []Command {
	reconciled := n.State == Reconciling
	if e.State != job.Succeeded {
		n.State = ended(e.State)
		if reconciled {
			// The plan that should tell what the lost apply left did not come
			// about: what is known is still nothing.
			n.State = NodeLost
		}
		n.Reason, n.Message = e.Reason, e.Message
		return nil
	}
	n.Changes, n.Digest = e.Changes, e.Digest
	n.Reason, n.Message = "", ""
	noOp := e.NoOp && !(n.blind() && (reconciled || n.Lost)) // it says nothing of what the loss left
	switch {
	case noOp && reconciled:
		n.State = Applied
		n.Message = "its apply was interrupted, and a new plan found nothing left to do"
	case noOp:
		n.State = Unchanged
	case d.PlanOnly:
		n.State = Planned
	case d.Stop != "":
		n.State, n.Reason = NodeStopped, fairlead.ReasonCanceled
		if reconciled {
			n.State = NodeLost
		}
	case reconciled:
		// Auto-approval was given to a plan that has been used up. Whether the
		// rest should be applied is for a person to say.
		n.State = Awaiting
		n.Message = "its apply was interrupted; the new plan " + n.afterLoss()
	case n.Lost:
		// It was lost in a deployment before this one. Auto-approval covers what
		// is known, and what the tool made that its state lacks is not.
		n.State = Awaiting
		n.Message = "an apply of it was interrupted; the plan " + n.afterLoss()
	case !d.Asks().waits(n.Changes):
		return []Command{n.start()}
	default:
		n.State = Awaiting
	}
	return nil
}

// blind reports whether a plan of the node sees nothing of what is there.
func (n *Node) blind() bool {
	t, _ := component.Of(n.Type)
	return t.Blind
}

// afterLoss ends a sentence about a plan that follows a lost apply.
func (n *Node) afterLoss() string {
	if n.blind() {
		return "cannot show how far it came, and does all of it again"
	}
	return "shows what is still missing"
}

// start puts the node to work on its saved plan.
func (n *Node) start() Command {
	n.past(n.ApplyJob)
	n.State, n.ApplyJob = Applying, ""
	n.Message = ""
	return Command{Component: n.Component, Operation: n.operation(true), PlanJob: n.PlanJob, Digest: n.Digest}
}

// maxReplans is how often a component is planned again because its plan is good
// for another place. Agents of a runner whose data folders differ could go on for
// ever.
const maxReplans = 5

func applyEnded(d *Deployment, n *Node, e JobEnded) []Command {
	n.Reason, n.Message = e.Reason, e.Message
	switch {
	case e.State == job.Succeeded:
		n.State, n.Reason, n.Message = Applied, "", ""
	case e.State == job.Lost && d.Stop != "":
		n.State, n.Lost = NodeLost, true
	case e.State == job.Lost:
		n.Lost = true
		return []Command{n.plan(Reconciling)}
	case e.State == job.Failed && e.Reason == fairlead.ReasonPlanElsewhere && d.Stop == "" && n.Replans < maxReplans:
		n.Replans++
		if n.Lost { // what the loss left is not known before the new plan
			return []Command{n.plan(Reconciling)}
		}
		return []Command{n.plan(Planning)}
	default:
		n.State = ended(e.State)
	}
	return nil
}

func ended(s job.State) NodeState {
	if s == job.Canceled {
		return NodeStopped
	}
	return NodeFailed
}

func unplannable(d *Deployment, e Unplannable) error {
	n := d.Node(e.Component)
	switch {
	case n == nil:
		return fmt.Errorf("deployment %s has no component %q", d.ID, e.Component)
	case (n.State == Planning || n.State == Reconciling) && n.PlanJob == "":
	case n.State == Applying && n.ApplyJob == "":
	default:
		return nil // its job is made already, or it wants none
	}
	n.Reason, n.Message = e.Reason, e.Message
	switch {
	case n.Lost:
		n.State = NodeLost // an apply of it was interrupted, and no plan will tell how far it came
	case e.Skip && n.State == Planning:
		n.State = Skipped
	default:
		n.State = NodeFailed
	}
	return nil
}

// approve lets nodes go on with their plans; advance puts them to work.
func approve(d *Deployment, e Approve) error {
	if d.State.Final() || d.State == Canceling {
		return refuse(*d, "be approved")
	}
	names := append(slices.Clone(e.Components), slices.Sorted(maps.Keys(e.Plans))...)
	for _, name := range names {
		n := d.Node(name)
		if n == nil {
			return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeComponentNotFound,
				Message: fmt.Sprintf("deployment %s has no component %q", d.ID, name)}
		}
		if n.State != Awaiting {
			return fairlead.Conflict(fairlead.CodeNotAwaitingApproval, "component %s is %s: it has no plan that waits for approval", name, n.State)
		}
		if seen, ok := e.Plans[name]; ok && seen != n.Digest {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodePlanChanged,
				Message: fmt.Sprintf("component %s has another plan by now", name), Hint: "Read the new plan before you approve it."}
		}
	}
	approved := false
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.State == Awaiting && (len(names) == 0 || slices.Contains(names, n.Component)) {
			n.State, n.Message, n.Approved = Approved, "", e.By
			approved = true
		}
	}
	if !approved {
		return fairlead.Conflict(fairlead.CodeNotAwaitingApproval, "deployment %s is %s: no plan waits for approval", d.ID, d.State)
	}
	return nil
}

func cancel(d *Deployment, e Cancel) ([]Command, error) {
	if d.State.Final() {
		return nil, refuse(*d, "be canceled")
	}
	if d.Stop == "" {
		d.Stop, d.StopBy = cmp.Or(e.Reason, fairlead.ReasonCanceled), e.By
	}
	var cmds []Command
	for i := range d.Nodes {
		n := &d.Nodes[i]
		switch {
		case n.State.Final():
		case n.State == Applying && n.ApplyJob != "":
			cmds = append(cmds, Command{Cancel: n.ApplyJob})
		case (n.State == Planning || n.State == Reconciling) && n.PlanJob != "":
			cmds = append(cmds, Command{Cancel: n.PlanJob})
		case n.Lost:
			n.State = NodeLost
		default:
			n.State, n.Reason = NodeStopped, fairlead.ReasonCanceled
		}
	}
	return cmds, nil
}

// advance moves every pending node whose needs are met or can no longer be, and
// every approved one: to work, as long as fewer are at work than may be. Whatever
// has been approved goes first. A skipped node may cause others to be skipped;
// nodes are in dependency order, so one pass is enough.
func advance(d *Deployment) []Command {
	if d.State == Queued || d.Stop != "" {
		return nil
	}
	free := cmp.Or(d.Parallelism, Parallelism)
	for _, n := range d.Nodes {
		if n.State.atWork() {
			free--
		}
	}
	var cmds []Command
	for i := range d.Nodes {
		if n := &d.Nodes[i]; n.State == Approved && free > 0 {
			free--
			cmds = append(cmds, n.start())
		}
	}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.State != Pending {
			continue
		}
		ready := true
		var broken []string
		for _, need := range n.Needs {
			s := d.Node(need).State
			if s.Final() && !s.Done() {
				broken = append(broken, need)
			}
			ready = ready && s.Done()
		}
		switch {
		case len(broken) > 0:
			n.State, n.Reason = Skipped, fairlead.ReasonNeedsFailed
			n.Message = "it needs " + strings.Join(broken, ", ")
			if d.unplanned(broken) {
				n.Reason, n.Message = fairlead.ReasonNeedsOutputs, "not planned: needs "+strings.Join(broken, ", ")+", of which there is no plan"
			}
		case ready && free > 0:
			free--
			cmds = append(cmds, n.plan(Planning))
		}
	}
	return cmds
}

// NotPlanned is the message of a node that a plan-only deployment skips, because
// the outputs of another component are not known before that is applied.
func NotPlanned(component string) string {
	return "not planned: needs outputs of " + component
}

// unplanned reports whether all of the nodes were skipped only because outputs are
// not known yet: nothing has failed.
func (d *Deployment) unplanned(components []string) bool {
	return d.PlanOnly && !slices.ContainsFunc(components, func(name string) bool {
		n := d.Node(name)
		return n.State != Skipped || n.Reason != fairlead.ReasonNeedsOutputs
	})
}

// derive computes the deployment's state from its nodes.
func derive(d *Deployment, at time.Time) {
	if d.State == Queued && d.Stop == "" {
		return
	}
	var working, waiting, bad, open bool
	for _, n := range d.Nodes {
		working = working || n.State.atWork()
		waiting = waiting || n.State == Awaiting
		open = open || !n.State.Final()
		switch n.State {
		case NodeFailed, NodeLost, NodeStopped:
			bad = true
		case Skipped:
			// A plan-only deployment skips what cannot be known before an apply.
			bad = bad || !d.PlanOnly
		}
	}
	switch {
	case d.Stop != "" && open:
		d.State = Canceling
	case working:
		d.State = Running
	case waiting:
		d.State = Waiting
	case open:
		d.State = Running
	case d.Stop != "":
		d.State = Canceled
	case bad:
		d.State = Failed
	default:
		d.State = Succeeded
	}
	if d.State.Final() && d.Finished.IsZero() {
		d.Finished = at
	}
}
