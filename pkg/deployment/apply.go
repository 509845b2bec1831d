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

// Event changes a deployment. It is one of Begin, JobStarted, JobEnded, UpToDate, Unplannable, Approve, Expire and Cancel.
type Event interface{ event() }

// Begin reports that the install has no other active deployment.
type Begin struct{}

// JobStarted names the job that the caller created for a command.
type JobStarted struct {
	Component string
	Operation job.Operation
	Job       fairlead.JobID
}

// JobEnded reports the end of a job.
type JobEnded struct {
	Job     fairlead.JobID
	State   job.State // final
	Reason  fairlead.Reason
	Message string
	NoOp    bool     // for a plan job: the plan has no changes
	Changes *Changes // for a plan job
	Digest  string   // for a plan job: the digest of the saved plan
	// NeedsSignature is, for a plan job, the rule of the customer's policy that asks for a signed approval; "": none.
	NeedsSignature string
}

// UpToDate reports that a component needs no plan: its inputs are those of its last deployment. Nothing is known about
// changes that others made to its resources.
type UpToDate struct{ Component string }

// Unplannable reports that no job can be created for a command. A value that the component needs is wrong, or is not
// known yet. If the value is not known yet, Skip is true. The command is usually a plan. It is an apply if inputs
// changed while the plan waited for approval.
type Unplannable struct {
	Component string
	Skip      bool
	Reason    fairlead.Reason
	Message   string
}

// Approve approves the plans of the named components. If it names no component, it approves all waiting plans. Plans
// maps a component to the digest of the plan that the person read. If a newer plan has replaced that plan, Apply
// refuses the event. Signatures maps a component to the customer's signed approval of its plan, a DSSE envelope. A
// component whose plan needs a signature is not approved without one. Only the runner verifies signatures.
type Approve struct {
	Components []string
	Plans      map[string]string
	Signatures map[string][]byte
	By         fairlead.Actor
}

// Expire reports that Deployment.Due has passed. It ends the components whose plans are too old to be applied. Each other
// event does so too.
type Expire struct{}

// Cancel cancels the queued and running jobs, and starts no more jobs.
type Cancel struct {
	Reason fairlead.Reason
	By     fairlead.Actor
}

func (Begin) event()       {}
func (JobStarted) event()  {}
func (JobEnded) event()    {}
func (UpToDate) event()    {}
func (Unplannable) event() {}
func (Approve) event()     {}
func (Expire) event()      {}
func (Cancel) event()      {}

// Apply returns the deployment after the event, and the commands for the caller. It does not change d. The error is a
// *fairlead.Error of KindConflict if d's state does not allow the event. It is a *fairlead.Error of KindNotFound if an
// approval names a component that d does not have. Any other error is a bug of the caller.
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
		cmds, err = jobEnded(&d, e, at)
	case UpToDate:
		err = upToDate(&d, e)
	case Unplannable:
		err = unplannable(&d, e)
	case Approve:
		err = approve(&d, e, at)
	case Expire: // advance ends the nodes
	case Cancel:
		cmds, err = cancel(&d, e)
	}
	if err != nil {
		return d, nil, err
	}
	cmds = append(cmds, advance(&d, at)...)
	derive(&d, at)
	return d, cmds, nil
}

func refuse(d Deployment, verb string) error {
	return fairlead.Conflict(fairlead.CodeDeploymentState, "deployment %s is %s: it cannot %s", d.ID, d.State, verb)
}

// jobStarted records the job in its node. It returns an error if the node does not wait for this job. The caller
// creates the job and applies the event in one commit, so only a bug of the caller can cause the error. After the
// error the caller must not commit.
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
		return fmt.Errorf("deployment %s: component %s is %s and does not wait for a job of operation %s", d.ID, n.Component, n.State, e.Operation)
	}
	return nil
}

// maxPast is how many past jobs a node keeps. A node rarely has more past jobs: each lost apply adds some, but then a
// person must approve the next plan.
const maxPast = 10

// past keeps the identifier of a job that a newer job of the same kind replaces. A person needs it later to read the
// log of a lost apply.
func (n *Node) past(id fairlead.JobID) {
	if id == "" {
		return
	}
	n.Past = append(slices.Clone(n.Past), id)
	if len(n.Past) > maxPast {
		n.Past = n.Past[len(n.Past)-maxPast:]
	}
}

func jobEnded(d *Deployment, e JobEnded, at time.Time) ([]Command, error) {
	if e.Job == "" || !e.State.Final() {
		return nil, fmt.Errorf("deployment %s: job %q has not ended, it is %q", d.ID, e.Job, e.State)
	}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		switch {
		case e.Job == n.PlanJob && (n.State == Planning || n.State == Reconciling):
			return planEnded(d, n, e, at), nil
		case e.Job == n.ApplyJob && n.State == Applying:
			return applyEnded(d, n, e), nil
		}
	}
	return nil, nil // no node waits for the job: the report is a repetition, the job was replaced, or it is another deployment's job
}

// plan moves the node to the state s and discards the result of its older plan. The returned command starts the new
// plan job.
func (n *Node) plan(s NodeState) Command {
	n.past(n.PlanJob)
	n.State, n.PlanJob, n.Digest, n.PlannedAt, n.Changes, n.Approved = s, "", "", time.Time{}, nil, fairlead.Actor{}
	n.NeedsSignature, n.Signature = "", nil
	return Command{Component: n.Component, Operation: n.operation(false)}
}

func planEnded(d *Deployment, n *Node, e JobEnded, at time.Time) []Command {
	reconciled := n.State == Reconciling
	if e.State != job.Succeeded {
		n.State = ended(e.State)
		if reconciled {
			// The plan failed, so it is still unknown what the lost apply left.
			n.State = NodeLost
		}
		n.Reason, n.Message = e.Reason, e.Message
		return nil
	}
	n.Changes, n.Digest, n.PlannedAt, n.NeedsSignature = e.Changes, e.Digest, at, e.NeedsSignature
	n.Reason, n.Message = "", ""
	noOp := e.NoOp && n.Run == nil && !(n.blind() && (reconciled || n.Lost)) // a blind plan does not show what the lost apply left
	switch {
	case noOp && reconciled:
		n.State = Applied
		n.Message = "its apply was interrupted; a new plan found no remaining changes"
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
		// Auto-approval was for the plan of the lost apply. A person decides whether to apply the rest.
		n.State = Awaiting
		n.Message = "its apply was interrupted; the new plan " + n.afterLoss()
	case n.Lost:
		// The apply was lost in an earlier deployment. Auto-approval covers only known changes. The tool may have
		// created things that its state does not contain.
		n.State = Awaiting
		n.Message = "an earlier apply was interrupted; the plan " + n.afterLoss()
		if n.Restored {
			n.Message = "the control plane was restored from a backup; the plan " + n.afterLoss()
		}
	case n.NeedsSignature != "":
		n.State = Awaiting // the runner refuses the apply without the customer's signature, whatever the deployment asks for
	case !d.Asks().waits(n.Changes):
		n.State = Approved // advance starts it, after the actions that run before it
	default:
		n.State = Awaiting
	}
	return nil
}

// blind reports whether a plan of the node ignores what exists in the customer's account.
func (n *Node) blind() bool {
	t, _ := component.Of(n.Type)
	return t.Blind
}

// afterLoss returns the end of a sentence about a plan that follows a lost apply.
func (n *Node) afterLoss() string {
	if n.blind() {
		return "cannot show how much of it was done, and repeats all of it"
	}
	return "shows what is still missing"
}

// start moves the node to Applying. The returned command starts the apply or destroy job of the saved plan.
func (d Deployment) start(n *Node) Command {
	before := d.PlanExpires(n)
	n.past(n.ApplyJob)
	n.State, n.ApplyJob = Applying, ""
	n.Message = ""
	return Command{Component: n.Component, Operation: n.operation(true), PlanJob: n.PlanJob, Digest: n.Digest, Signature: n.Signature, Before: before}
}

// maxReplans is how often a component is planned again because its apply ran at another place than its plan. Without
// the limit, a runner whose agents have different data folders could plan the component forever.
const maxReplans = 5

func applyEnded(d *Deployment, n *Node, e JobEnded) []Command {
	n.Reason, n.Message = e.Reason, e.Message
	switch {
	case e.State == job.Succeeded:
		n.State, n.Reason, n.Message = Applied, "", ""
	case e.State == job.Lost && n.Run != nil:
		n.State = NodeLost // a new plan would not show what the run did
	case e.State == job.Lost && d.Stop != "":
		n.State, n.Lost = NodeLost, true
	case e.State == job.Lost:
		n.Lost = true
		return []Command{n.plan(Reconciling)}
	case e.State == job.Failed && e.Reason == fairlead.ReasonPlanElsewhere && d.Stop == "" && n.Replans < maxReplans:
		n.Replans++
		if n.Lost { // what the lost apply left is unknown until a new plan shows it
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

// upToDate ends a node without a job. It returns an error if the node needs a plan, which only a bug of the caller can
// cause.
func upToDate(d *Deployment, e UpToDate) error {
	n := d.Node(e.Component)
	if n == nil || n.State != Planning || n.PlanJob != "" || !n.MayBeUpToDate() || d.Refresh {
		return fmt.Errorf("deployment %s: component %q needs a plan", d.ID, e.Component)
	}
	n.State, n.Reason, n.Message = Unchanged, "", "its source, variables and environment have not changed"
	return nil
}

// MayBeUpToDate reports whether the node may end without a plan. A component whose last apply or destroy was lost needs a
// plan, and so do one that is destroyed and a run of an action.
func (n *Node) MayBeUpToDate() bool { return n.Run == nil && !n.Destroy && !n.Lost && !n.Restored }

func unplannable(d *Deployment, e Unplannable) error {
	n := d.Node(e.Component)
	switch {
	case n == nil:
		return fmt.Errorf("deployment %s has no component %q", d.ID, e.Component)
	case (n.State == Planning || n.State == Reconciling) && n.PlanJob == "":
	case n.State == Applying && n.ApplyJob == "":
	default:
		return nil // the node's job exists already, or the node needs no job
	}
	n.Reason, n.Message = e.Reason, e.Message
	switch {
	case e.Skip && n.State == Planning && n.Restored:
		n.State = Skipped // no job is known to be lost, and the next deployment plans it
	case n.Lost:
		n.State = NodeLost // an apply was interrupted, and no plan will show how much of the apply was done
	case e.Skip && n.State == Planning:
		n.State = Skipped
	default:
		n.State = NodeFailed
	}
	return nil
}

// unsigned reports whether the event lacks the signature that the node's plan needs.
func (n *Node) unsigned(e Approve) bool {
	return n.NeedsSignature != "" && len(e.Signatures[n.Component]) == 0
}

func needsSignature(d Deployment, n *Node) error {
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeSignatureRequired,
		Message: fmt.Sprintf("the customer's policy asks for a signed approval of component %s: %s", n.Component, n.NeedsSignature),
		Hint:    "A person of the customer approves it with their key: {deployment.sign}.",
		Args:    fairlead.Args{Deployment: string(d.ID), Component: n.Component}}
}

// approve marks nodes as approved; advance starts their jobs.
func approve(d *Deployment, e Approve, at time.Time) error {
	names := slices.Concat(e.Components, slices.Sorted(maps.Keys(e.Plans)), slices.Sorted(maps.Keys(e.Signatures)))
	if err := refuseExpired(d, names, at); err != nil {
		return err
	}
	if d.State.Final() || d.State == Canceling {
		return refuse(*d, "be approved")
	}
	for _, name := range names {
		n := d.Node(name)
		if n == nil {
			return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeComponentNotFound,
				Message: fmt.Sprintf("deployment %s has no component %q", d.ID, name)}
		}
		if n.State != Awaiting {
			return fairlead.Conflict(fairlead.CodeNotAwaitingApproval, "component %s is %s: no plan of it waits for approval", name, n.State)
		}
		if seen, ok := e.Plans[name]; ok && seen != n.Digest {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodePlanChanged,
				Message: fmt.Sprintf("component %s has a newer plan than the one that the request approves", name), Hint: "Read the new plan before you approve it."}
		}
		if n.unsigned(e) {
			return needsSignature(*d, n)
		}
	}
	approved := false
	var unsigned *Node
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.State == Awaiting && (len(names) == 0 && !d.expired(n, at) || slices.Contains(names, n.Component)) {
			if n.unsigned(e) { // only if the request names no component
				unsigned = n
				continue
			}
			n.State, n.Message, n.Approved, n.Signature = Approved, "", e.By, e.Signatures[n.Component]
			approved = true
		}
	}
	if !approved && unsigned != nil {
		return needsSignature(*d, unsigned)
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

// advance ends nodes whose plans expired. It starts jobs of approved nodes first, and after them jobs of pending nodes whose needs are done. It stops
// when Parallelism nodes are active. It skips every pending node that needs a component which did not succeed, and
// every approved node whose action before it did not succeed. Such an end can allow or end other nodes, so advance
// repeats its passes until one of them changes nothing.
func advance(d *Deployment, at time.Time) []Command {
	if d.State == Queued || d.Stop != "" {
		return nil
	}
	free := cmp.Or(d.Parallelism, Parallelism)
	for _, n := range d.Nodes {
		if n.State.active() {
			free--
		}
	}
	expire(d, at)
	var cmds []Command
	start := func(c Command) {
		free--
		cmds = append(cmds, c)
	}
	for moved := true; moved; {
		moved = false
		for i := range d.Nodes {
			n := &d.Nodes[i]
			if n.State != Approved {
				continue
			}
			switch waits, broken := d.before(n); {
			case len(broken) > 0:
				n.skip(broken)
				moved = true
			case !waits && free > 0:
				start(d.start(n))
				moved = true
			}
		}
		for i := range d.Nodes {
			n := &d.Nodes[i]
			if n.State != Pending {
				continue
			}
			ready, broken := d.needs(n)
			switch idle := d.idle(n); {
			case len(broken) > 0:
				n.State, n.Reason = Skipped, fairlead.ReasonNeedsFailed
				n.Message = "it needs " + strings.Join(broken, ", ") + ", which did not succeed"
				if d.unplanned(broken) {
					n.Reason, n.Message = fairlead.ReasonNeedsOutputs, "not planned: needs "+strings.Join(broken, ", ")+", which has no plan"
				}
				moved = true
			case idle:
				n.State, n.Message = Unchanged, "not run: no changes of "+strings.Join(n.Run.Around, ", ")+" to apply"
				moved = true
			case ready && free > 0:
				start(n.plan(Planning))
				moved = true
			}
		}
	}
	return cmds
}

// needs reports whether the pending node can be planned. broken are the nodes that it waits for and that can no
// longer be done.
func (d *Deployment) needs(n *Node) (ready bool, broken []string) {
	ready = true
	for _, need := range n.Needs {
		s := d.Node(need).State
		if s.Final() && !s.Done() {
			broken = append(broken, need)
		}
		ready = ready && s.Done()
	}
	if !n.Run.hook(Before) || len(n.Run.Around) == 0 {
		return ready, broken
	}
	var reached, open, over bool
	var failed []string
	for _, name := range n.Run.Around {
		switch s := d.Node(name).State; {
		case s == Approved || s == Planned:
			reached = true
		case !s.Final():
			open = true
		case s.Done():
			over = true
		default:
			failed = append(failed, name)
		}
	}
	if !reached && !open && !over {
		broken = append(broken, failed...)
	}
	return ready && reached, broken
}

// idle reports whether the pending node is a hook that has nothing to do in this deployment: all components around it have
// ended, and no plan of them had changes. A hook that runs before an operation is also idle if a retry takes over that
// the operation is done.
func (d *Deployment) idle(n *Node) bool {
	if n.Run == nil || len(n.Run.Around) == 0 {
		return false
	}
	changed := func(name string) bool {
		s := d.Node(name).State
		return !s.Final() || s == Planned || s == Applied && n.Run.Trigger == After
	}
	return !slices.ContainsFunc(n.Run.Around, changed)
}

// before reports whether the approved node waits for actions that run before it. broken are those of them that did
// not succeed.
func (d *Deployment) before(n *Node) (waits bool, broken []string) {
	for i := range d.Nodes {
		if h := &d.Nodes[i]; h.Run.hook(Before) && slices.Contains(h.Run.Around, n.Component) && !h.State.Done() {
			if waits = true; h.State.Final() {
				broken = append(broken, h.Component)
			}
		}
	}
	return waits, broken
}

// skip ends an approved node whose actions before it did not succeed.
func (n *Node) skip(broken []string) {
	n.State, n.Reason = Skipped, fairlead.ReasonNeedsFailed
	n.Message = strings.Join(broken, ", ") + " had to run before it and did not succeed"
	if n.Lost {
		n.State = NodeLost // an earlier apply was interrupted, and its plan was not applied
	}
}

// NotPlanned returns the message of a node that a plan-only deployment skips. The node needs outputs of the given
// component, which is not applied yet.
func NotPlanned(component string) string {
	return "not planned: needs outputs of " + component
}

// unplanned reports whether the deployment is plan-only and skipped all of the components because outputs are not
// known yet. If so, none of the components failed.
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
		working = working || n.State.active()
		waiting = waiting || n.State == Awaiting
		open = open || !n.State.Final()
		switch n.State {
		case NodeFailed, NodeLost, NodeStopped:
			bad = true
		case Skipped:
			// A plan-only deployment skips components whose variables are not known before an apply. Such a skip is
			// no failure.
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
