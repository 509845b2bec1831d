package diagnosis

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// OfDeployment returns the situations of a deployment: first the situations of its components,
// and after them the situations of the whole deployment.
func OfDeployment(d Deployment, now time.Time) []Situation {
	var out []Situation
	if d.State == deployment.Queued {
		return append(out, d.queued())
	}
	var approvals []*deployment.Node
	var first time.Time // when the oldest job that waits for an agent was created
	waits := 0
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.State == deployment.Awaiting && !n.Lost {
			approvals = append(approvals, n)
			continue
		}
		out = append(out, d.node(n, now)...)
		if j, ok := d.current(n); ok && j.State == job.Queued {
			if waits++; first.IsZero() || j.Created.Before(first) {
				first = j.Created
			}
		}
	}
	if waits > 0 && d.Runner != nil {
		out = append(out, untaken(*d.Runner, first.Add(job.QueueTimeout), cancelDeployment(d.ID, "cancels it now"))...)
	}
	if len(approvals) > 0 {
		out = append(out, d.approval(approvals))
	}
	if s, ok := d.over(); ok {
		out = append(out, s)
	}
	return out
}

// OfNode returns the situations of a component. It uses only the deployment's record, and no
// facts about jobs.
func OfNode(d deployment.Deployment, n *deployment.Node, install string) []Situation {
	f := Deployment{Deployment: d, Install: install}
	if n.State == deployment.Awaiting && !n.Lost {
		return nil // OfDeployment reports all approvals together
	}
	return f.node(n, time.Time{})
}

// current returns the running or queued job of a node.
func (d Deployment) current(n *deployment.Node) (job.Job, bool) {
	var id fairlead.JobID
	switch n.State {
	case deployment.Planning, deployment.Reconciling:
		id = n.PlanJob
	case deployment.Applying:
		id = n.ApplyJob
	}
	j, ok := d.Jobs[id]
	return j, ok
}

// node returns the situations of one component.
func (d Deployment) node(n *deployment.Node, now time.Time) []Situation {
	var out []Situation
	switch {
	case n.State == deployment.NodeLost && n.Run != nil:
		out = append(out, d.lostRun(n))
	case n.State == deployment.Reconciling, n.State == deployment.Awaiting && n.Lost, n.State == deployment.NodeLost:
		out = append(out, d.lost(n))
	case n.State == deployment.NodeFailed:
		out = append(out, d.failed(n))
	case n.State == deployment.NodeStopped && n.Reason == fairlead.ReasonPlanExpired:
		out = append(out, d.expired(n))
	case n.State == deployment.NodeStopped && n.ApplyJob != "":
		out = append(out, d.stopped(n))
	}
	if j, ok := d.current(n); ok {
		if s, ok := retrying(j, d.Runner, now); ok {
			out = append(out, s)
		}
		if s, ok := atWork(j, d.Runner, now); ok {
			out = append(out, s)
		}
	}
	if c, ok := d.Parts[n.Component]; ok && c.Lock != nil && !c.Lock.Held && n.State.Final() {
		out = append(out, locked(d.Install, n.Component, *c.Lock))
	}
	return out
}

// lostJob returns the last lost apply or destroy of the node. If the job's record was not
// read, it returns a job with ID, operation, plugin and component only.
func (d Deployment) lostJob(n *deployment.Node) job.Job {
	ids := append(append([]fairlead.JobID{n.ApplyJob}, reversed(n.Past)...), n.LostJob)
	for _, id := range ids {
		if j, ok := d.Jobs[id]; ok && j.State == job.Lost {
			return j
		}
	}
	op := job.OpApply
	switch {
	case n.Run != nil:
		op = job.OpRun
	case n.Destroy:
		op = job.OpDestroy
	}
	return job.Job{ID: cmp.Or(n.ApplyJob, n.LostJob), Operation: op, Plugin: n.Type, Component: n.Component} // the job's record was not read
}

func reversed(ids []fairlead.JobID) []fairlead.JobID {
	out := make([]fairlead.JobID, 0, len(ids))
	for i := len(ids) - 1; i >= 0; i-- {
		out = append(out, ids[i])
	}
	return out
}

// lost returns the situation of a component whose apply or destroy was lost.
func (d Deployment) lost(n *deployment.Node) Situation {
	j := d.lostJob(n)
	s := Situation{Kind: Lost, Component: n.Component, Job: j.ID}
	switch {
	case j.ID == "" && n.Restored:
		s.What = restoredWhat(n.Component)
	case j.State == job.Lost:
		s.What = lostWhat(j, d.Runner) + notRepeated
	default:
		s.What = fmt.Sprintf("The %s %s was interrupted. Its progress is unknown.", j.Operation, j.ID) + notRepeated
	}
	if j.ID != "" {
		if c, ok := d.Parts[n.Component]; ok {
			s.Known = append(s.Known, stateOf(c, &j)...)
		}
		s.Known = append(s.Known, logOfLost(j))
		s.Next = append(s.Next, logs(j.ID, "shows what it did before"))
	}
	texts := textsAfterLoss(j)
	if j.ID == "" {
		texts = textsAfterRestore()
	}
	switch n.State {
	case deployment.Reconciling:
		s.Known = append(s.Known, fmt.Sprintf(texts.planning, n.PlanJob))
		s.Next = append(s.Next, followDeployment(d.ID))
	case deployment.Awaiting:
		s.Next = append(s.Next, d.salvaged(j)...)
		if j.Salvaged != nil && j.Salvaged.Whole {
			s.Known = append(s.Known, "The runner kept a state that the job could not save. After you upload that state, the new plan is stale: cancel this deployment and retry it.")
		}
		s.Known = append(s.Known, fmt.Sprintf(texts.planned, n.PlanJob, changes(n.Changes)))
		s.Next = append(s.Next, showJob(n.PlanJob, texts.show), byHand(texts.decide),
			d.approveNode(n, texts.approve), cancelDeployment(d.ID, "changes nothing more; components that are not applied stay as they are"))
	case deployment.NodeLost:
		s.Next = append(s.Next, d.salvaged(j)...)
		if d.Stop != "" {
			s.Known = append(s.Known, "The deployment was canceled before a new plan was applied.")
		} else if p, ok := d.Jobs[n.PlanJob]; ok && p.State.Final() && p.State != job.Succeeded {
			s.Known = append(s.Known, fmt.Sprintf("The plan %s, which would show what is missing, %s%s", p.ID, ended(p.State), because(p.Reason, p.Message)))
			s.Next = append(s.Next, logs(p.ID, "shows why that plan ended"))
		} else if n.Reason != "" || n.Message != "" {
			s.Known = append(s.Known, "The plan that would show what is missing was not created"+because(n.Reason, n.Message))
		}
		s.Next = append(s.Next, d.onward(texts.onward)...)
	}
	return s
}

// lostRun returns the situation of a run of an action that was lost. An action has no state, and no plan shows what its
// run did.
func (d Deployment) lostRun(n *deployment.Node) Situation {
	j := d.lostJob(n)
	s := Situation{Kind: Lost, Component: n.Component, Job: j.ID, Known: []string{logOfLost(j)}}
	if s.What = fmt.Sprintf("The %s %s was interrupted. Its progress is unknown.", j.Operation, j.ID) + notRepeated; j.State == job.Lost {
		s.What = lostWhat(j, d.Runner) + notRepeated
	}
	s.Next = append(s.Next, logs(j.ID, "shows what it did before"),
		byHand("Find out what the run did: read its log, and look at the systems that it changed. If it must not do that twice, undo it first."))
	s.Next = append(s.Next, d.onward("runs it again from the beginning")...)
	return s
}

// notRepeated follows the description of a lost job.
const notRepeated = " Fairlead does not repeat it."

// restoredWhat describes a component whose record comes from a backup.
func restoredWhat(component string) string {
	return fmt.Sprintf("The control plane was restored from a backup. A job after that backup may have changed component %s.", component)
}

// salvaged returns the steps that restore the state that the runner kept of a lost job.
func (d Deployment) salvaged(j job.Job) []Step {
	if j.Salvaged == nil {
		return nil
	}
	return salvage(j, d.Install, d.Parts[j.Component].storage())
}

// afterLoss holds the texts about the plan that follows a lost apply.
type afterLoss struct {
	planning, planned             string // formats; their arguments are the ID of the plan's job, and for planned also the plan's changes
	show, decide, approve, onward string
}

func textsAfterLoss(lost job.Job) afterLoss {
	if typeOf(lost).Blind {
		return afterLoss{
			planning: "The plan %s will need your approval. It cannot show what the lost job changed.",
			planned:  "The new plan %s cannot show what the lost job changed. It would repeat all of it: %s.",
			show:     "shows what would run", decide: afterBlindLoss, approve: "runs it again from the beginning",
			onward: "plans it again and asks for approval before anything runs",
		}
	}
	t := afterLoss{
		planning: "The plan %s now checks what is missing. If nothing is missing, the deployment continues by itself. Otherwise it waits for your approval.",
		planned:  "The new plan %s compares the state with the cloud. Still missing: %s.",
		show:     "shows that plan: compare it with the log", decide: afterCompare, approve: "applies the new plan",
		onward: "plans it again and shows what is missing before it changes anything",
	}
	if typeOf(lost).StateFile == "" {
		t.planned, t.decide = "The new plan %s compares the component with what exists. Still missing: %s.", afterCompareWithoutState
	}
	return t
}

// textsAfterRestore returns the texts for a component that no known job lost.
func textsAfterRestore() afterLoss {
	return afterLoss{
		planning: "The plan %s now compares the state with the cloud.",
		planned:  "The plan %s compares the state with the cloud: %s.",
		show:     "shows that plan",
		decide:   "If the plan wants to create a resource that exists already, the state is older than the resource. " + importByHand + " Then cancel this deployment, and deploy the new version.",
		approve:  "applies the plan",
		onward:   "plans it again and shows what differs before it changes anything",
	}
}

// afterBlindLoss advises a person whose plan cannot show what is missing.
const afterBlindLoss = "Find out what the job did: read its log, and look at the systems that it changed. If the job must not do that twice, undo it first. " +
	"Or publish a version of the app that continues from there, with {app.publish}, cancel this deployment, and deploy the new version."

// afterCompare advises a person who has compared the plan with the log.
const afterCompare = "If the log shows that a resource was created, and the plan wants to create it again, then the resource exists but is not in the state. " + importByHand +
	" Then cancel this deployment, and deploy the new version."

// afterCompareWithoutState is afterCompare for a type whose plugin keeps no state.
const afterCompareWithoutState = "If the log shows that an object was created, and the plan wants to create it again, then the plugin does not see that object. Delete it by hand, or fix the plugin and publish the app with {app.publish}." +
	" Then cancel this deployment, and deploy the new version."

func ended(s job.State) string {
	switch s {
	case job.Canceled:
		return "was canceled"
	case job.Lost:
		return "was lost"
	}
	return string(s)
}

// failed returns the situation of a component whose plan or apply failed.
func (d Deployment) failed(n *deployment.Node) Situation {
	id, op := n.PlanJob, job.OpPlan
	if n.Destroy {
		op = job.OpPlanDestroy
	}
	if n.ApplyJob != "" {
		if id, op = n.ApplyJob, job.OpApply; n.Destroy {
			op = job.OpDestroy
		}
	}
	on := d.onward("resumes the deployment")
	if id == "" {
		s := Situation{Kind: Failed, Component: n.Component, What: fmt.Sprintf("No job could be created for component %s%s", n.Component, because(n.Reason, n.Message))}
		if d.Install != "" && !d.Gone {
			s.Next = append(s.Next, showInstall(d.Install, "shows its inputs"))
		}
		s.Next = append(s.Next, on...)
		return s
	}
	j, ok := d.Jobs[id]
	if !ok { // the job's record was not read
		j = job.Job{ID: id, Operation: op, Plugin: n.Type, Component: n.Component, Install: d.Deployment.Install, Reason: n.Reason, Message: n.Message, Attempts: job.MaxAttempts}
		j.Lease.Epoch = 1
		if n.Reason == fairlead.ReasonQueueTimeout || n.Reason == fairlead.ReasonPlanExpired {
			j.Lease.Epoch = 0
		}
	}
	c, known := d.Parts[n.Component]
	s := failure(j, d.Install, c.storage(), nil)
	if j.Reason == fairlead.ReasonQueueTimeout && d.Runner != nil && !d.Runner.Gone {
		s.Next = append(s.Next, showRunner(d.Runner.Name, "shows whether an agent is online"))
	}
	if known && c.Unknown && j.Operation.Mutates() && !s.untouched {
		s.Known = append(s.Known, stateOf(c, &j)...)
	}
	s.Next = append(s.Next, on...)
	return s
}

// storage returns the kind of storage of the component's state; "" if it is not known.
func (c Component) storage() string {
	switch {
	case c.State == nil:
		return ""
	case c.State.OnRunner != "":
		return "local"
	case c.State.Outside != "":
		return c.State.Outside
	}
	return "http"
}

// stopped returns the situation of a component whose apply was canceled.
func (d Deployment) stopped(n *deployment.Node) Situation {
	s := Situation{Kind: Stopped, Component: n.Component, Job: n.ApplyJob, What: fmt.Sprintf("The apply %s was canceled%s", n.ApplyJob, because("", n.Message))}
	j, ok := d.Jobs[n.ApplyJob]
	if ok {
		s.What = jobName(j) + " was stopped" + because(j.Reason, j.Message)
		if j.Started.IsZero() {
			s.Known = append(s.Known, "Nothing was changed: it had not started.")
		}
	}
	if c, known := d.Parts[n.Component]; known && c.Unknown && !(ok && j.Started.IsZero()) {
		s.Known = append(s.Known, stateOf(c, &j)...)
	}
	if !ok || !j.Started.IsZero() {
		s.Next = append(s.Next, logs(n.ApplyJob, "shows what it did before"))
	}
	s.Next = append(s.Next, d.onward("plans it again and continues")...)
	return s
}

// expired returns the situation of a component whose plan expired before its apply started.
func (d Deployment) expired(n *deployment.Node) Situation {
	s := Situation{Kind: Stopped, Component: n.Component, Job: n.PlanJob, What: fmt.Sprintf("The plan of %s expired%s", n.Component, because("", n.Message)),
		Known: []string{"Nothing was changed. A plan that is too old may no longer describe what exists."}}
	if n.PlanJob != "" {
		s.Next = append(s.Next, showJob(n.PlanJob, "shows the plan"))
	}
	s.Next = append(s.Next, d.onward("plans it again")...)
	return s
}

// stateOf returns what is known about a component in the cloud: whether its state is reliable,
// how old the state is, and which job holds the lock. The parameter j is the interrupted job,
// or nil.
func stateOf(c Component, j *job.Job) []string {
	var out []string
	if c.Unknown {
		text := "Component %s is `unknown` since %s: its state may differ from what exists."
		switch t, _ := component.Of(c.Type); {
		case t.Blind:
			text = "Component %s is `unknown` since %s: no record shows what exists."
		case t.StateFile == "":
			text = "Component %s is `unknown` since %s: its next plan shows what exists."
		}
		out = append(out, fmt.Sprintf(text, c.Name, at(c.Since)))
	}
	if st := c.State; st != nil {
		switch during := j != nil && !j.Started.IsZero() && !st.Saved.Before(j.Started); {
		case st.OnRunner != "":
			out = append(out, fmt.Sprintf("Its state is on the runner's host, in %s of the runner's data folder. Only the runner knows its age.", st.OnRunner))
		case st.Outside != "":
			out = append(out, fmt.Sprintf("Its state is in the runner's own storage (%s). The control plane does not know its age.", st.Outside))
		case st.Saved.IsZero():
			out = append(out, "No state was ever saved: only the log shows what was created.")
		case during:
			out = append(out, fmt.Sprintf("The job last saved its state at %s%s. Only the log shows what it did after that.", at(st.Saved), serial(st)))
		case j != nil && !j.Started.IsZero():
			out = append(out, fmt.Sprintf("The job saved no state: the last state is from %s%s. Only the log shows what the job did.", at(st.Saved), serial(st)))
		default:
			out = append(out, fmt.Sprintf("Its state was last saved at %s%s.", at(st.Saved), serial(st)))
		}
	}
	if c.Lock != nil && c.Lock.Held {
		out = append(out, fmt.Sprintf("Its state is locked by the job %s since %s.", c.Lock.Job, at(c.Lock.Since)))
	}
	return out
}

func serial(st *State) string {
	if st.Serial == 0 {
		return ""
	}
	return fmt.Sprintf(" (serial %d)", st.Serial)
}

// changes returns the changes of a plan as text.
func changes(c *deployment.Changes) string {
	if c == nil {
		return "its changes are unknown"
	}
	var parts []string
	for _, p := range []struct {
		n    int
		verb string
	}{{c.Add, "add"}, {c.Change, "change"}, {c.Destroy, "destroy"}, {c.Run, "run"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", p.n, p.verb))
		}
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	case c.Outputs:
		return "outputs change"
	}
	return "no changes"
}

// queued returns the situation of a deployment that waits for another deployment.
func (d Deployment) queued() Situation {
	switch {
	case d.StatesIn != "":
		return d.statesApart()
	case len(d.Missing) > 0:
		return d.notGranted()
	}
	s := Situation{Kind: Queued, What: fmt.Sprintf("Another deployment of install %s is not finished.", d.Install)}
	if a := d.Ahead; a != nil {
		s.Ahead = a
		s.What = fmt.Sprintf("This deployment waits for deployment %s of install %s, which %s.", a.ID, d.Install, a.does())
		if a.Between > 0 {
			s.What += fmt.Sprintf(" %s come before this one.", count(a.Between, "more", "more"))
			if a.Between == 1 {
				s.What = strings.Replace(s.What, "come before", "comes before", 1)
			}
		}
		s.Known = []string{"This deployment starts by itself and creates its plans then."}
		s.Next = append(s.Next, a.next()...)
	}
	s.Next = append(s.Next, cancelDeployment(d.ID, "removes this deployment from the queue"))
	return s
}

// notGranted returns the situation of a deployment that waits for an update of the
// customer's stack.
func (d Deployment) notGranted() Situation {
	return Situation{Kind: NotGranted,
		What:  fmt.Sprintf("The version uses AWS actions that the stack of install %s does not grant: %s.", d.Install, strings.Join(d.Missing, ", ")),
		Known: []string{"Nothing was planned or changed. The deployment starts by itself after the customer updates the stack's parameters."},
		Next: []Step{installStack(d.Install, "prints the parameters, and the link with which the customer updates the stack"),
			cancelDeployment(d.ID, "removes this deployment from the queue")}}
}

// statesApart returns the situation of a deployment that waits for a stack that uses the
// states of the install.
func (d Deployment) statesApart() Situation {
	return Situation{Kind: StatesApart,
		What:  fmt.Sprintf("The states of install %s are in the bucket %s of an earlier stack, but the current stack has the bucket %s, and its jobs cannot read the states.", d.Install, d.StatesIn, d.StackHas),
		Known: []string{"Nothing was planned or changed. The deployment starts by itself after the customer sets ExistingStateBucket and ExistingStateKey in the stack."},
		Next: []Step{installStack(d.Install, "prints both values, and the link with which the customer updates the stack"),
			cancelDeployment(d.ID, "removes this deployment from the queue")}}
}

// does returns the end of a sentence that tells what the deployment does now.
func (a Ahead) does() string {
	if a.State != deployment.Waiting {
		return "is " + string(a.State)
	}
	if a.Since.IsZero() {
		return "awaits approval"
	}
	return "awaits approval since " + at(a.Since)
}

// next returns the steps that end the wait for the deployment.
func (a Ahead) next() []Step {
	if a.State == deployment.Waiting {
		return []Step{approve(a.ID, "approves its plans"), cancelDeployment(a.ID, "rejects its plans"), showDeployment(a.ID, "shows its plans")}
	}
	return []Step{showDeployment(a.ID, "shows what it does")}
}

// NotQueued returns the error for a deployment that may not be queued behind another deployment.
// Its hint names the steps that end the other deployment.
func NotQueued(install string, a Ahead) *fairlead.Error {
	var hint []string
	for _, s := range a.next() {
		hint = append(hint, s.Action.Verb.Mention()+" "+s.Effect+".")
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeDeploymentRuns, Message: fmt.Sprintf("deployment %s of install %s %s", a.ID, install, a.does()),
		Hint: strings.Join(hint, " "), Args: fairlead.Args{Deployment: string(a.ID)},
		Details: map[string]string{"deployment": string(a.ID), "state": string(a.State)}}
}

// approveNode returns the step that approves the plan of one component.
func (d Deployment) approveNode(n *deployment.Node, effect string) Step {
	if n.NeedsSignature != "" {
		return sign(d.ID, n.Component, effect)
	}
	return approve(d.ID, effect, n.Component)
}

// approval returns the situation of plans that wait for approval.
func (d Deployment) approval(nodes []*deployment.Node) Situation {
	s := Situation{Kind: Approval}
	var names, unsigned []string // unsigned: those that need no signature
	for _, n := range nodes {
		names = append(names, n.Component)
		known := fmt.Sprintf("%s: %s.", n.Component, changes(n.Changes))
		if end := d.PlanExpires(n); !end.IsZero() {
			known += " The plan expires at " + at(end) + "."
		}
		s.Known = append(s.Known, known)
		if n.PlanJob != "" {
			s.Next = append(s.Next, showJob(n.PlanJob, "shows the plan of "+n.Component))
		}
		if n.NeedsSignature == "" {
			unsigned = append(unsigned, n.Component)
			continue
		}
		s.Known = append(s.Known, fmt.Sprintf("The customer's policy asks for a signed approval of %s: %s.", n.Component, n.NeedsSignature))
		s.Next = append(s.Next, sign(d.ID, n.Component, "approves the plan of "+n.Component+" with a key of the customer"))
	}
	if len(names) == 1 {
		s.What = fmt.Sprintf("The plan of %s waits for approval. It has changed nothing yet.", names[0])
		s.Component = names[0]
	} else {
		s.What = fmt.Sprintf("The plans of %s wait for approval. They have changed nothing yet.", strings.Join(names, ", "))
	}
	switch {
	case len(unsigned) == 0:
	case len(unsigned) < len(names):
		s.Next = append(s.Next, approve(d.ID, "approves the plans that need no signature", unsigned...))
	case d.lostAwaiting(): // the plan that follows a loss needs a separate approval
		s.Next = append(s.Next, approve(d.ID, "approves the plans of components that were not lost", names...))
	default:
		s.Next = append(s.Next, approve(d.ID, "approves all waiting plans"))
	}
	s.Next = append(s.Next, cancelDeployment(d.ID, "rejects them"))
	return s
}

func (d Deployment) lostAwaiting() bool {
	for _, n := range d.Nodes {
		if n.State == deployment.Awaiting && n.Lost {
			return true
		}
	}
	return false
}

// over returns the situation of a deployment that failed or was canceled.
func (d Deployment) over() (Situation, bool) {
	if d.State != deployment.Failed && d.State != deployment.Canceled {
		return Situation{}, false
	}
	if d.Since != "" && !d.Gone {
		return Situation{Kind: DeployedSince, What: fmt.Sprintf("A later deployment, %s, changed the install: this deployment can no longer be retried.", d.Since), Next: d.onward("")}, true
	}
	s := Situation{Kind: Stopped, What: "The deployment was canceled. Components that were applied stay applied."}
	if d.State == deployment.Failed {
		s = Situation{Kind: Failed, What: "The deployment failed. Components that were applied stay applied."}
	}
	if d.Kind == deployment.Action {
		s.What = map[deployment.State]string{deployment.Failed: "The run of action " + d.Action + " failed.", deployment.Canceled: "The run of action " + d.Action + " was canceled."}[d.State]
		s.Next = d.onward("runs it again with the same params")
		return s, true
	}
	s.Next = d.onward("resumes the deployment")
	if len(s.Next) > 0 {
		if d.Kind == deployment.Teardown {
			s.Next = append(s.Next, teardown(d.Install))
		} else {
			s.Next = append(s.Next, deploy(d.Install))
		}
	}
	return s, true
}

// onward returns the steps that continue after the deployment. The parameter effect describes a
// retry. onward offers no retry that the control plane would refuse.
func (d Deployment) onward(effect string) []Step {
	switch {
	case d.Gone:
		return nil
	case d.Since == "" && !d.State.Final():
		return []Step{byHand("After the end of the deployment:"), retry(d.ID, effect)}
	case d.Since == "":
		return []Step{retry(d.ID, effect)}
	case d.Kind == deployment.Teardown:
		return []Step{showDeployment(d.Since, "shows the later deployment"), teardown(d.Install)}
	}
	return []Step{showDeployment(d.Since, "shows the later deployment"), deploy(d.Install)}
}
