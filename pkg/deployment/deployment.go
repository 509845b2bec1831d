// Package deployment is the life of a deployment: a graph of components, each
// planned, approved and applied in the order that the graph asks for. It is
// pure: an event goes in, the next state and the jobs to start or cancel come
// out.
//
// Nothing is applied that nobody approved, and nothing is repeated after its
// outcome was lost: a lost apply is followed by a plan that shows what is
// still missing, and if anything is, a person decides.
package deployment

//go:generate env UPDATE_GOLDEN=1 go test -run TestTheStatesPageIsInStep .

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// Kind is what a deployment is for.
type Kind string

// The kinds.
const (
	Deploy   Kind = "deploy"   // bring the install to a version
	Teardown Kind = "teardown" // remove all that there is of it
)

// State is where a deployment is. All but Queued follow from its nodes.
type State string

// The states.
const (
	Queued    State = "queued"            // behind another deployment of its install
	Running   State = "running"           // at least one job is queued or at work
	Waiting   State = "awaiting-approval" // nothing runs; a person has to decide
	Canceling State = "canceling"         // canceled, and a job has not stopped yet
	Succeeded State = "succeeded"         // final: every component is as it should be
	Failed    State = "failed"            // final: a component failed, was canceled by itself, skipped or lost
	Canceled  State = "canceled"          // final: canceled, and nothing runs any more
)

// States returns all states, in the order in which a deployment passes them.
func States() []State {
	return []State{Queued, Running, Waiting, Canceling, Succeeded, Failed, Canceled}
}

// Final reports whether the deployment is over.
func (s State) Final() bool { return s == Succeeded || s == Failed || s == Canceled }

// NodeState is where one component is on its way through a deployment.
type NodeState string

// The states of a node.
const (
	Pending     NodeState = "pending"           // needs others first, or as many of its deployment are at work as may be
	Planning    NodeState = "planning"          // its plan job is queued or at work
	Awaiting    NodeState = "awaiting-approval" // its plan waits for a person
	Approved    NodeState = "approved"          // its plan was approved; as many of its deployment are at work as may be
	Applying    NodeState = "applying"          // its apply or destroy job is queued or at work
	Reconciling NodeState = "reconciling"       // its apply was lost; a plan looks what is missing
	Applied     NodeState = "applied"           // final: changed as planned
	Unchanged   NodeState = "unchanged"         // final: there was nothing to change
	Planned     NodeState = "planned"           // final: plan-only
	NodeFailed  NodeState = "failed"            // final: its plan or apply failed
	NodeStopped NodeState = "canceled"          // final: it, or the deployment, was canceled
	Skipped     NodeState = "skipped"           // final: what it needs did not succeed
	NodeLost    NodeState = "lost"              // final: interrupted, outcome unknown, not reconciled
)

// Done reports whether others that need the node may go on.
func (s NodeState) Done() bool { return s == Applied || s == Unchanged || s == Planned }

// Final reports whether the node will not move again.
func (s NodeState) Final() bool {
	switch s {
	case Pending, Planning, Awaiting, Approved, Applying, Reconciling:
		return false
	}
	return true
}

// atWork reports whether a job of the node is queued or running.
func (s NodeState) atWork() bool { return s == Planning || s == Applying || s == Reconciling }

// Changes counts what a plan would do.
type Changes struct {
	Add     int  `json:"add"`
	Change  int  `json:"change"`
	Destroy int  `json:"destroy"`
	Outputs bool `json:"outputs,omitempty"`
	Run     int  `json:"run,omitempty"` // programs that would run, of which nobody knows what they change
}

// Node is one component's way through a deployment.
type Node struct {
	Component string           `json:"component"`
	Type      string           `json:"type,omitempty"`    // of package component
	Destroy   bool             `json:"destroy,omitempty"` // remove it instead of applying it
	Needs     []string         `json:"needs,omitempty"`   // nodes that come first
	State     NodeState        `json:"state"`
	PlanJob   fairlead.JobID   `json:"plan_job,omitempty"`
	ApplyJob  fairlead.JobID   `json:"apply_job,omitempty"`
	Past      []fairlead.JobID `json:"past,omitempty"`   // jobs that were followed by another of their kind, oldest first
	Digest    string           `json:"digest,omitempty"` // of the saved plan
	Changes   *Changes         `json:"changes,omitempty"`
	Replans   int              `json:"replans,omitempty"`  // how often a plan was good for another place than where it was to be applied
	Lost      bool             `json:"lost,omitempty"`     // an apply of it was lost, in this deployment or before, and nothing has completed it since
	LostJob   fairlead.JobID   `json:"lost_job,omitempty"` // the one that was lost before this deployment
	Reason    fairlead.Reason  `json:"reason,omitempty"`
	Message   string           `json:"message,omitempty"`
	Approved  fairlead.Actor   `json:"approved,omitzero"` // whose approval the last plan has; zero: none, or that of AutoApprove
}

// Ask says which plans of a deployment wait for a person, in all of its levels. A
// plan after a lost apply always does.
type Ask string

// What plans wait for a person, from the fewest to all that do something.
const (
	AskNever    Ask = "never"
	AskDestroys Ask = "destroys" // those that destroy or replace something
	AskChanges  Ask = "changes"  // those that also change something in place; not those that only add
	AskAlways   Ask = "always"
)

// Asks returns which plans of the deployment wait for a person.
func (d Deployment) Asks() Ask {
	switch {
	case d.Ask != "":
		return d.Ask
	case d.AutoApprove:
		return AskNever
	}
	return AskAlways
}

// waits reports whether a plan that does something waits for a person. One whose
// changes were not counted, or cannot be, may destroy.
func (a Ask) waits(c *Changes) bool {
	unknown := c == nil || *c == Changes{} || c.Run > 0
	switch a {
	case AskNever:
		return false
	case AskDestroys:
		return unknown || c.Destroy > 0
	case AskChanges:
		return unknown || c.Destroy > 0 || c.Change > 0
	case AskAlways:
	}
	return true
}

// Parallelism is how many components of a deployment are at work at once, unless
// it says otherwise: as many as a tool of this kind does itself. Jobs of a runner
// are taken in the order in which they were queued, so that it is also how many
// jobs of one install another one's can come to stand behind.
const Parallelism = 10

// Deployment is a graph of jobs on one install.
type Deployment struct {
	ID          fairlead.DeploymentID `json:"id"`
	Org         fairlead.OrgID        `json:"org"`
	Install     fairlead.InstallID    `json:"install"`
	App         string                `json:"app"`
	Version     fairlead.VersionID    `json:"version"`
	Kind        Kind                  `json:"kind"`
	PlanOnly    bool                  `json:"plan_only,omitempty"`
	AutoApprove bool                  `json:"auto_approve,omitempty"` // it asks for nothing but what follows a lost apply
	Ask         Ask                   `json:"ask,omitempty"`          // "": as AutoApprove says
	Parallelism int                   `json:"parallelism,omitempty"`  // nodes that have a job queued or at work at once; 0: Parallelism
	RetryOf     fairlead.DeploymentID `json:"retry_of,omitempty"`
	State       State                 `json:"state"`
	By          fairlead.Actor        `json:"by,omitzero"`      // who asked for it
	Stop        fairlead.Reason       `json:"stop,omitempty"`   // why it was canceled
	StopBy      fairlead.Actor        `json:"stop_by,omitzero"` // who canceled it
	Nodes       []Node                `json:"nodes,omitempty"`  // in an order that respects Needs
	Created     time.Time             `json:"created"`
	Began       time.Time             `json:"began,omitzero"`
	Finished    time.Time             `json:"finished,omitzero"`
}

// MayChange reports whether the deployment has changed something, or may yet: it
// is not over, or has begun an apply or destroy. A node with past jobs counts,
// since one of them may have been an apply. One that only plans changes nothing.
func (d Deployment) MayChange() bool {
	return !d.PlanOnly && (!d.State.Final() || slices.ContainsFunc(d.Nodes, func(n Node) bool { return n.ApplyJob != "" || len(n.Past) > 0 }))
}

// Node returns the node of the component, or nil.
func (d *Deployment) Node(component string) *Node {
	for i := range d.Nodes {
		if d.Nodes[i].Component == component {
			return &d.Nodes[i]
		}
	}
	return nil
}

// clone returns a deployment whose nodes can be changed.
func (d Deployment) clone() Deployment {
	d.Nodes = append([]Node(nil), d.Nodes...)
	return d
}

// operation returns what the node's next job does.
func (n *Node) operation(apply bool) job.Operation {
	switch {
	case apply && n.Destroy:
		return job.OpDestroy
	case apply:
		return job.OpApply
	case n.Destroy:
		return job.OpPlanDestroy
	}
	return job.OpPlan
}

// Command is what the caller must do, in the same commit as the deployment.
type Command struct {
	Cancel    fairlead.JobID // cancel this job; or, when empty, start one:
	Component string
	Operation job.Operation
	PlanJob   fairlead.JobID // whose saved plan is carried out; of apply and destroy
	Digest    string         // of that plan
}
