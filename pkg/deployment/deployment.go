// Package deployment implements the state machine of a deployment: a graph of components that are planned, approved
// and applied in dependency order. It is pure: Apply takes an event and returns the next state and the jobs to start
// or cancel.
//
// No plan is applied without an approval, by a person or by the deployment's settings. A lost apply is never
// repeated. Instead, a new plan shows what is still missing. If anything is missing, a person decides whether to
// apply the new plan.
package deployment

//go:generate env UPDATE_GOLDEN=1 go test -run TestStatesPageIsUpToDate .

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// Kind is the purpose of a deployment.
type Kind string

// The kinds.
const (
	Deploy   Kind = "deploy"   // bring the install to a version
	Teardown Kind = "teardown" // destroy all components of the install
	Action   Kind = "action"   // run one action of the app
)

// Trigger is what starts a run of an action.
type Trigger string

// The triggers.
const (
	Manual   Trigger = "manual"   // a person or a program asked for the run
	Schedule Trigger = "schedule" // the action's schedule
	Before   Trigger = "before"   // a deployment is about to apply or destroy a component
	After    Trigger = "after"    // a deployment has applied or destroyed a component
)

// Run makes a node a run of an action in place of a component. It has a plan, as a
// component has, and the run executes exactly this plan. A lost run is final: the node
// is never planned again, because no plan shows what the run did.
type Run struct {
	Action  string             `json:"action"`
	Version fairlead.VersionID `json:"version"` // of the app; it declares the action
	Trigger Trigger            `json:"trigger"`
	// Around are the components whose operation a hook belongs to. A hook runs at most
	// once in a deployment, and only if the plan of one of these components has changes.
	// With the trigger After, they are among the node's Needs. With the trigger Before,
	// they wait for the node between their approval and their apply or destroy.
	Around []string `json:"around,omitempty"`
	Role   string   `json:"role,omitempty"` // of the run's job, see component.Type.RoleOf
}

// hook reports whether the run belongs to the operation of a component.
func (r *Run) hook(t Trigger) bool { return r != nil && r.Trigger == t }

// State is the state of a deployment. All states except Queued are computed from its nodes.
type State string

// The states.
const (
	Queued    State = "queued"            // waits for another deployment of its install, or for the customer's stack to grant what its version uses
	Running   State = "running"           // at least one job is queued or runs
	Waiting   State = "awaiting-approval" // no job is queued or runs; a person must approve a plan
	Canceling State = "canceling"         // canceled, but a job has not ended yet
	Succeeded State = "succeeded"         // final: every component is applied or unchanged; plan-only: no plan failed
	Failed    State = "failed"            // final: a component failed, was skipped or was lost, its job alone was canceled, or its plan expired
	Canceled  State = "canceled"          // final: canceled, and all jobs have ended
)

// States returns all states: first Queued, last the final states.
func States() []State {
	return []State{Queued, Running, Waiting, Canceling, Succeeded, Failed, Canceled}
}

// Final reports whether the deployment has ended.
func (s State) Final() bool { return s == Succeeded || s == Failed || s == Canceled }

// NodeState is the state of one component in a deployment.
type NodeState string

// The states of a node.
const (
	Pending     NodeState = "pending"           // waits for a component that it needs, for the deployment's parallelism limit, or, as an action around an operation, for that operation
	Planning    NodeState = "planning"          // its plan job is queued or runs
	Awaiting    NodeState = "awaiting-approval" // its plan waits for a person's approval
	Approved    NodeState = "approved"          // its plan was approved; it waits for actions that run before it, or for the deployment's parallelism limit
	Applying    NodeState = "applying"          // its apply, destroy or run job is queued or runs
	Reconciling NodeState = "reconciling"       // its apply was lost; a new plan shows what is missing
	Applied     NodeState = "applied"           // final: changed as planned
	Unchanged   NodeState = "unchanged"         // final: there was nothing to change, or no operation around which the action runs
	Planned     NodeState = "planned"           // final: planned in a plan-only deployment
	NodeFailed  NodeState = "failed"            // final: its plan or apply failed
	NodeStopped NodeState = "canceled"          // final: its job or the deployment was canceled, or its plan expired
	Skipped     NodeState = "skipped"           // final: a component that it needs or an action before it did not succeed, or its variables are not known yet
	NodeLost    NodeState = "lost"              // final: its apply or run was interrupted, and no plan has shown what is missing
)

// Done reports whether components that need this one may be planned.
func (s NodeState) Done() bool { return s == Applied || s == Unchanged || s == Planned }

// Final reports whether the node never changes its state again.
func (s NodeState) Final() bool {
	switch s {
	case Pending, Planning, Awaiting, Approved, Applying, Reconciling:
		return false
	}
	return true
}

// active reports whether a job of the node is queued or running.
func (s NodeState) active() bool { return s == Planning || s == Applying || s == Reconciling }

// Changes counts the changes of a plan.
type Changes struct {
	Add     int  `json:"add"`
	Change  int  `json:"change"`
	Destroy int  `json:"destroy"`
	Outputs bool `json:"outputs,omitempty"`
	Run     int  `json:"run,omitempty"` // programs that would run; their changes cannot be known
}

// Node is one component of a deployment, or one run of an action.
type Node struct {
	Component string           `json:"component"`           // of a run: the action's name after fairlead.ActionPrefix
	Run       *Run             `json:"run,omitempty"`       // nil: a component
	Type      string           `json:"type,omitempty"`      // a type of package component
	Destroy   bool             `json:"destroy,omitempty"`   // destroy it instead of applying it
	Size      job.Size         `json:"size,omitzero"`       // of the node's jobs
	OwnImage  bool             `json:"own_image,omitempty"` // the node's jobs run in an image of their own
	Role      string           `json:"role,omitempty"`      // of its applies, see component.Type.RoleOf; of a run, Run has it
	Needs     []string         `json:"needs,omitempty"`     // components that must be done first
	State     NodeState        `json:"state"`
	PlanJob   fairlead.JobID   `json:"plan_job,omitempty"`
	ApplyJob  fairlead.JobID   `json:"apply_job,omitempty"`
	Past      []fairlead.JobID `json:"past,omitempty"`      // jobs that a newer job of the same kind replaced, oldest first
	Digest    string           `json:"digest,omitempty"`    // the digest of the saved plan
	PlannedAt time.Time        `json:"planned_at,omitzero"` // when the saved plan was recorded
	Changes   *Changes         `json:"changes,omitempty"`
	Replans   int              `json:"replans,omitempty"`  // how often the node was planned again because its apply ran at another place than its plan
	Lost      bool             `json:"lost,omitempty"`     // an apply was lost, in this deployment or an earlier one, and no later apply or plan has completed it
	LostJob   fairlead.JobID   `json:"lost_job,omitempty"` // the job that was lost before this deployment
	Restored  bool             `json:"restored,omitempty"` // Lost, because the control plane was restored: jobs after the backup are not known
	Reason    fairlead.Reason  `json:"reason,omitempty"`
	Message   string           `json:"message,omitempty"`
	Approved  fairlead.Actor   `json:"approved,omitzero"` // who approved the last plan; zero: not approved, or approved by the deployment's settings
	// NeedsSignature is the rule of the customer's policy that asks for a signed approval of the last plan; "": none.
	NeedsSignature string `json:"needs_signature,omitempty"`
	// Signature is the customer's signed approval of the last plan, which the step verifies; nil: none.
	Signature []byte `json:"signature,omitempty"`
}

// Ask selects the plans that wait for a person's approval. All components of a deployment have the same Ask. A plan
// with changes that follows a lost apply always waits.
type Ask string

// The values of Ask: which plans need a person's approval, in order from none to all plans with changes.
const (
	AskNever    Ask = "never"
	AskDestroys Ask = "destroys" // plans that destroy or replace something
	AskChanges  Ask = "changes"  // plans that destroy, replace or change something; plans that only add do not wait
	AskAlways   Ask = "always"
)

// Asks returns which plans of the deployment wait for a person. Ask takes precedence over AutoApprove.
func (d Deployment) Asks() Ask {
	switch {
	case d.Ask != "":
		return d.Ask
	case d.AutoApprove:
		return AskNever
	}
	return AskAlways
}

// waits reports whether a plan with changes waits for a person. A plan without a count of its changes is treated like
// a plan that destroys something.
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

// Parallelism is the default limit of a deployment's nodes that have a job queued or running at the same time. 10 is
// also the default of Terraform and OpenTofu. Agents claim a runner's jobs in the order in which they were queued. So
// another install's job waits for at most Parallelism jobs of this deployment.
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
	AutoApprove bool                  `json:"auto_approve,omitempty"` // only a plan that follows a lost apply waits for approval
	Ask         Ask                   `json:"ask,omitempty"`          // "": derived from AutoApprove
	PlansExpire time.Duration         `json:"plans_expire,omitempty"` // the age at which a plan may no longer be applied; 0: the constant PlansExpire
	Refresh     bool                  `json:"refresh,omitempty"`      // plan also components whose inputs have not changed
	Action      string                `json:"action,omitempty"`       // of Kind Action: the name of the action
	Trigger     Trigger               `json:"trigger,omitempty"`      // of Kind Action
	Targets     []string              `json:"targets,omitempty"`      // the components that were asked for; empty: all
	Parallelism int                   `json:"parallelism,omitempty"`  // limit of nodes with a job queued or running at the same time; 0: the constant Parallelism
	RetryOf     fairlead.DeploymentID `json:"retry_of,omitempty"`
	State       State                 `json:"state"`
	By          fairlead.Actor        `json:"by,omitzero"`      // who requested it
	Stop        fairlead.Reason       `json:"stop,omitempty"`   // why it was canceled
	StopBy      fairlead.Actor        `json:"stop_by,omitzero"` // who canceled it
	Nodes       []Node                `json:"nodes,omitempty"`  // in dependency order: each node comes after the nodes that it needs
	Created     time.Time             `json:"created"`
	Began       time.Time             `json:"began,omitzero"`
	Finished    time.Time             `json:"finished,omitzero"`
}

// MayChange reports whether the deployment may have changed something, or may still change something: it has not
// ended, or it started an apply or destroy. A node with past jobs counts, because a past job may have been an apply.
// A plan-only deployment changes nothing, and a run of an action changes no component.
func (d Deployment) MayChange() bool {
	return !d.PlanOnly && d.Kind != Action && (!d.State.Final() || slices.ContainsFunc(d.Nodes, func(n Node) bool { return n.ApplyJob != "" || len(n.Past) > 0 }))
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

// Targeted returns the nodes of the named components and of all that they need, with the hooks around them, in the
// order of nodes. Without names it returns all nodes. If no component has one of the names, missing is that name.
func Targeted(nodes []Node, names []string) (chosen []Node, missing string) {
	if len(names) == 0 {
		return nodes, ""
	}
	wanted := map[string]bool{}
	for _, name := range names {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Run == nil && n.Component == name }) {
			return nil, name
		}
		wanted[name] = true
	}
	for _, n := range slices.Backward(nodes) { // each node comes after the nodes that it needs
		if wanted[n.Component] {
			for _, need := range n.Needs {
				wanted[need] = true
			}
		}
	}
	for _, n := range nodes {
		if wanted[n.Component] || n.Run != nil && slices.ContainsFunc(n.Run.Around, func(name string) bool { return wanted[name] }) {
			chosen = append(chosen, n)
		}
	}
	return withoutMissing(chosen), ""
}

// withoutMissing returns the nodes with hooks that refer only to nodes of the list. A hook can also need or surround
// components that were not chosen, and they do not change in this deployment.
func withoutMissing(nodes []Node) []Node {
	there := map[string]bool{}
	for _, n := range nodes {
		there[n.Component] = true
	}
	missing := func(name string) bool { return !there[name] }
	for i := range nodes {
		if n := &nodes[i]; n.Run != nil {
			run := *n.Run
			run.Around = slices.DeleteFunc(slices.Clone(run.Around), missing)
			n.Run, n.Needs = &run, slices.DeleteFunc(slices.Clone(n.Needs), missing)
		}
	}
	return nodes
}

// clone returns a copy whose nodes can be changed without changing d.
func (d Deployment) clone() Deployment {
	d.Nodes = append([]Node(nil), d.Nodes...)
	return d
}

// operation returns the operation of the node's next job.
func (n *Node) operation(apply bool) job.Operation {
	switch {
	case apply && n.Run != nil:
		return job.OpRun
	case n.Run != nil:
		return job.OpPlanRun
	case apply && n.Destroy:
		return job.OpDestroy
	case apply:
		return job.OpApply
	case n.Destroy:
		return job.OpPlanDestroy
	}
	return job.OpPlan
}

// Command tells the caller to cancel or start a job. The caller must do so in the commit that stores the deployment.
type Command struct {
	Cancel    fairlead.JobID // cancel this job; empty: start a job with the fields below
	Component string
	Operation job.Operation
	PlanJob   fairlead.JobID // for an apply, destroy or run: the job whose saved plan is executed
	Digest    string         // the digest of that saved plan
	Signature []byte         // the customer's signed approval of that plan; nil: none
	Before    time.Time      // when that plan expires: a job that no runner has claimed until then must not start; zero: no such time
}
