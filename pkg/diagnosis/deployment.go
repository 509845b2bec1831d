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

// OfDeployment returns what is to be said of a deployment: of each component
// what is particular to it, and of the whole what goes on.
func OfDeployment(d Deployment, now time.Time) []Situation {
	var out []Situation
	if d.State == deployment.Queued {
		return append(out, d.queued())
	}
	var approvals []*deployment.Node
	var first time.Time // when the first job was made that waits for an agent
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
		out = append(out, untaken(*d.Runner, first.Add(job.QueueTimeout), cancelDeployment(d.ID, "gives it up now"))...)
	}
	if len(approvals) > 0 {
		out = append(out, d.approval(approvals))
	}
	if s, ok := d.over(); ok {
		out = append(out, s)
	}
	return out
}

// OfNode returns what is to be said of a component, by the deployment alone.
func OfNode(d deployment.Deployment, n *deployment.Node, install string) []Situation {
	f := Deployment{Deployment: d, Install: install}
	if n.State == deployment.Awaiting && !n.Lost {
		return nil // the deployment says so
	}
	return f.node(n, time.Time{})
}

// current returns the job that a node waits for.
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

// node is about one component.
func (d Deployment) node(n *deployment.Node, now time.Time) []Situation {
	var out []Situation
	switch {
	case n.State == deployment.Reconciling, n.State == deployment.Awaiting && n.Lost, n.State == deployment.NodeLost:
		out = append(out, d.lost(n))
	case n.State == deployment.NodeFailed:
		out = append(out, d.failed(n))
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

// lostJob returns the apply or destroy of the node that was lost: the last one,
// unless another has followed it.
func (d Deployment) lostJob(n *deployment.Node) job.Job {
	ids := append(append([]fairlead.JobID{n.ApplyJob}, reversed(n.Past)...), n.LostJob)
	for _, id := range ids {
		if j, ok := d.Jobs[id]; ok && j.State == job.Lost {
			return j
		}
	}
	op := job.OpApply
	if n.Destroy {
		op = job.OpDestroy
	}
	return job.Job{ID: cmp.Or(n.ApplyJob, n.LostJob), Operation: op, Plugin: n.Type, Component: n.Component} // it was not looked at
}

func reversed(ids []fairlead.JobID) []fairlead.JobID {
	out := make([]fairlead.JobID, 0, len(ids))
	for i := len(ids) - 1; i >= 0; i-- {
		out = append(out, ids[i])
	}
	return out
}

// lost is about a component of which an apply or destroy was lost.
func (d Deployment) lost(n *deployment.Node) Situation {
	j := d.lostJob(n)
	s := Situation{Kind: Lost, Component: n.Component, Job: j.ID}
	switch {
	case j.State == job.Lost:
		s.What = lostWhat(j, d.Runner)
	default:
		s.What = fmt.Sprintf("The %s %s was interrupted, and nobody knows how far it came.", j.Operation, j.ID)
	}
	s.What += " It is not repeated."
	if c, ok := d.Parts[n.Component]; ok {
		s.Known = append(s.Known, stateOf(c, &j)...)
	}
	s.Known = append(s.Known, logOfLost(j))
	s.Next = append(s.Next, logs(j.ID, "shows what it had done until then"))
	texts := textsAfterLoss(j)
	switch n.State {
	case deployment.Reconciling:
		s.Known = append(s.Known, fmt.Sprintf(texts.planning, n.PlanJob))
		s.Next = append(s.Next, followDeployment(d.ID))
	case deployment.Awaiting:
		s.Next = append(s.Next, d.salvaged(j)...)
		if j.Salvaged != nil && j.Salvaged.Whole {
			s.Known = append(s.Known, "The runner keeps a state that the job could not save. Once that has taken its place, the new plan is stale: cancel this deployment then, and retry it.")
		}
		s.Known = append(s.Known, fmt.Sprintf(texts.planned, n.PlanJob, changes(n.Changes)))
		s.Next = append(s.Next, showJob(n.PlanJob, texts.show), byHand(texts.decide),
			approve(d.ID, texts.approve, n.Component), cancelDeployment(d.ID, "leaves everything as it is; what is not applied stays so"))
	case deployment.NodeLost:
		s.Next = append(s.Next, d.salvaged(j)...)
		if d.Stop != "" {
			s.Known = append(s.Known, "The deployment was canceled before a new plan was carried out.")
		} else if p, ok := d.Jobs[n.PlanJob]; ok && p.State.Final() && p.State != job.Succeeded {
			s.Known = append(s.Known, fmt.Sprintf("The plan %s that was to show what is missing did not come about: it %s%s", p.ID, ended(p.State), because(p.Reason, p.Message)))
			s.Next = append(s.Next, logs(p.ID, "shows why that plan did not come about"))
		} else if n.Reason != "" || n.Message != "" {
			s.Known = append(s.Known, "The plan that was to show what is missing did not come about"+because(n.Reason, n.Message))
		}
		s.Next = append(s.Next, d.onward(texts.onward)...)
	}
	return s
}

// salvaged says what to do about what the runner keeps of the state of a job
// that was lost.
func (d Deployment) salvaged(j job.Job) []Step {
	if j.Salvaged == nil {
		return nil
	}
	return salvage(j, d.Install, d.Parts[j.Component].storage())
}

// afterLoss are the texts about the plan that follows a lost apply.
type afterLoss struct {
	planning, planned             string // formats: of the plan's job, and what it would do
	show, decide, approve, onward string
}

func textsAfterLoss(lost job.Job) afterLoss {
	if typeOf(lost).Blind {
		return afterLoss{
			planning: "The plan %s waits for you once it is made. It cannot show how far the job came.",
			planned:  "The new plan %s cannot show how far the job came, and would do all of it again: %s.",
			show:     "shows what would be done", decide: afterBlindLoss, approve: "does it again, from its beginning",
			onward: "plans it anew, and waits for you before it is done again",
		}
	}
	return afterLoss{
		planning: "The plan %s looks now what is missing. If that is nothing, the deployment goes on by itself; else it waits for you.",
		planned:  "The new plan %s shows what is still missing, by the state and the cloud: %s.",
		show:     "shows that plan: compare it with the log", decide: afterCompare, approve: "carries the new plan out",
		onward: "plans it anew and shows what is missing before anything is changed",
	}
}

// afterBlindLoss is what a person decides on where no plan shows what is missing.
const afterBlindLoss = "Find out from the log, and where the job worked, what it has done. If that must not be done twice, undo it first, " +
	"or publish a version of the app that goes on from there, with {app.publish}. A deployment of the new version takes the place of this one, which you cancel."

// afterCompare is what a person decides on, between reading and approving.
const afterCompare = "What the log says was made and the plan wants to make again is there, and not in the state. " + importByHand +
	" A deployment of the new version takes the place of this one, which you cancel."

func ended(s job.State) string {
	switch s {
	case job.Canceled:
		return "was canceled"
	case job.Lost:
		return "was lost"
	}
	return string(s)
}

// failed is about a component whose plan or apply failed.
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
	on := d.onward("goes on where it stopped")
	if id == "" {
		s := Situation{Kind: Failed, Component: n.Component, What: fmt.Sprintf("No job could be made for component %s%s", n.Component, because(n.Reason, n.Message))}
		if d.Install != "" && !d.Gone {
			s.Next = append(s.Next, showInstall(d.Install, "shows its inputs"))
		}
		s.Next = append(s.Next, on...)
		return s
	}
	j, ok := d.Jobs[id]
	if !ok { // it was not looked at
		j = job.Job{ID: id, Operation: op, Plugin: n.Type, Component: n.Component, Install: d.Deployment.Install, Reason: n.Reason, Message: n.Message, Attempts: job.MaxAttempts}
		j.Lease.Epoch = 1
		if n.Reason == fairlead.ReasonQueueTimeout {
			j.Lease.Epoch = 0
		}
	}
	c, known := d.Parts[n.Component]
	s := failure(j, d.Install, c.storage(), nil)
	if j.Reason == fairlead.ReasonQueueTimeout && d.Runner != nil && !d.Runner.Gone {
		s.Next = append(s.Next, showRunner(d.Runner.Name, "says whether an agent is there"))
	}
	if known && c.Unknown && j.Operation.Mutates() && !s.untouched {
		s.Known = append(s.Known, stateOf(c, &j)...)
	}
	s.Next = append(s.Next, on...)
	return s
}

// storage returns the kind of storage of the component's state; "": not known.
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

// stopped is about a component whose apply was canceled.
func (d Deployment) stopped(n *deployment.Node) Situation {
	s := Situation{Kind: Stopped, Component: n.Component, Job: n.ApplyJob, What: fmt.Sprintf("The apply %s was canceled%s", n.ApplyJob, because("", n.Message))}
	j, ok := d.Jobs[n.ApplyJob]
	if ok {
		s.What = jobName(j) + " was stopped" + because(j.Reason, j.Message)
		if j.Started.IsZero() {
			s.Known = append(s.Known, "Nothing was changed: it had not begun.")
		}
	}
	if c, known := d.Parts[n.Component]; known && c.Unknown && !(ok && j.Started.IsZero()) {
		s.Known = append(s.Known, stateOf(c, &j)...)
	}
	if !ok || !j.Started.IsZero() {
		s.Next = append(s.Next, logs(n.ApplyJob, "shows how far it came"))
	}
	s.Next = append(s.Next, d.onward("plans it anew and goes on")...)
	return s
}

// stateOf says what is known of a component in the cloud: whether its state may
// be believed, how old that is, and who still holds its lock. j is the job that
// was interrupted, or nil.
func stateOf(c Component, j *job.Job) []string {
	var out []string
	if c.Unknown {
		text := "Component %s is `unknown` since %s: what exists of it may not be what its state says."
		if t, _ := component.Of(c.Type); t.StateFile == "" {
			text = "Component %s is `unknown` since %s: nothing records what exists of it."
		}
		out = append(out, fmt.Sprintf(text, c.Name, at(c.Since)))
	}
	if st := c.State; st != nil {
		switch during := j != nil && !j.Started.IsZero() && !st.Saved.Before(j.Started); {
		case st.OnRunner != "":
			out = append(out, fmt.Sprintf("Its state is on the runner's host, in %s of the runner's data folder; only the runner knows how old it is.", st.OnRunner))
		case st.Outside != "":
			out = append(out, fmt.Sprintf("Its state is in the runner's own storage (%s); the control plane does not see how old it is.", st.Outside))
		case st.Saved.IsZero():
			out = append(out, "No state of it was ever saved: what was made is in the log alone.")
		case during:
			out = append(out, fmt.Sprintf("The job saved its state last at %s%s. What it did after that is in the log alone.", at(st.Saved), serial(st)))
		case j != nil && !j.Started.IsZero():
			out = append(out, fmt.Sprintf("The job saved no state: the last one is of %s%s. What it did is in the log alone.", at(st.Saved), serial(st)))
		default:
			out = append(out, fmt.Sprintf("Its state was saved last at %s%s.", at(st.Saved), serial(st)))
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

// changes renders what a plan would do.
func changes(c *deployment.Changes) string {
	if c == nil {
		return "its changes are not known"
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

// queued is about a deployment that waits for others.
func (d Deployment) queued() Situation {
	s := Situation{Kind: Queued, What: fmt.Sprintf("Another deployment of install %s is not over.", d.Install)}
	if a := d.Ahead; a != nil {
		s.Ahead = a
		s.What = fmt.Sprintf("This deployment waits for deployment %s of install %s, which %s.", a.ID, d.Install, a.does())
		if a.Between > 0 {
			s.What += fmt.Sprintf(" %s come before this one.", count(a.Between, "more", "more"))
			if a.Between == 1 {
				s.What = strings.Replace(s.What, "come before", "comes before", 1)
			}
		}
		s.Known = []string{"This one begins by itself, and is planned then."}
		s.Next = append(s.Next, a.next()...)
	}
	s.Next = append(s.Next, cancelDeployment(d.ID, "takes this one out of the queue"))
	return s
}

// does ends a sentence about the deployment: what it does now.
func (a Ahead) does() string {
	if a.State != deployment.Waiting {
		return "is " + string(a.State)
	}
	if a.Since.IsZero() {
		return "awaits approval"
	}
	return "awaits approval since " + at(a.Since)
}

// next is what ends the wait for the deployment.
func (a Ahead) next() []Step {
	if a.State == deployment.Waiting {
		return []Step{approve(a.ID, "carries out its plans"), cancelDeployment(a.ID, "carries out none of them"), showDeployment(a.ID, "shows its plans")}
	}
	return []Step{showDeployment(a.ID, "shows what it does")}
}

// NotQueued refuses a deployment whose caller did not want it to wait for the one
// that has the install, and says what ends that one.
func NotQueued(install string, a Ahead) *fairlead.Error {
	var hint []string
	for _, s := range a.next() {
		hint = append(hint, s.Action.Verb.Mention()+" "+s.Effect+".")
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeDeploymentRuns, Message: fmt.Sprintf("deployment %s of install %s %s", a.ID, install, a.does()),
		Hint: strings.Join(hint, " "), Args: fairlead.Args{Deployment: string(a.ID)},
		Details: map[string]string{"deployment": string(a.ID), "state": string(a.State)}}
}

// approval is about plans that a person has not looked at yet.
func (d Deployment) approval(nodes []*deployment.Node) Situation {
	s := Situation{Kind: Approval}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Component)
		s.Known = append(s.Known, fmt.Sprintf("%s: %s.", n.Component, changes(n.Changes)))
		if n.PlanJob != "" {
			s.Next = append(s.Next, showJob(n.PlanJob, "shows the plan of "+n.Component))
		}
	}
	if len(names) == 1 {
		s.What = fmt.Sprintf("The plan of %s waits for approval; nothing of it was changed yet.", names[0])
		s.Component = names[0]
	} else {
		s.What = fmt.Sprintf("The plans of %s wait for approval; nothing of them was changed yet.", strings.Join(names, ", "))
	}
	if lost := d.lostAwaiting(); lost { // those are decided one by one
		s.Next = append(s.Next, approve(d.ID, "carries out what was not lost", names...))
	} else {
		s.Next = append(s.Next, approve(d.ID, "carries out all that wait"))
	}
	s.Next = append(s.Next, cancelDeployment(d.ID, "carries out none"))
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

// over is about a deployment that has ended without success.
func (d Deployment) over() (Situation, bool) {
	if d.State != deployment.Failed && d.State != deployment.Canceled {
		return Situation{}, false
	}
	if d.Since != "" && !d.Gone {
		return Situation{Kind: DeployedSince, What: fmt.Sprintf("The install has been deployed since, by %s: this deployment cannot be retried any more.", d.Since), Next: d.onward("")}, true
	}
	s := Situation{Kind: Stopped, What: "The deployment was canceled; what had been applied stays so."}
	if d.State == deployment.Failed {
		s = Situation{Kind: Failed, What: "The deployment failed; what had been applied stays so."}
	}
	s.Next = d.onward("goes on where it stopped")
	if len(s.Next) > 0 {
		if d.Kind == deployment.Teardown {
			s.Next = append(s.Next, teardown(d.Install))
		} else {
			s.Next = append(s.Next, deploy(d.Install))
		}
	}
	return s, true
}

// onward is what goes on after a deployment that is over, or will be; effect
// says what that does. A retry that would be refused is not offered.
func (d Deployment) onward(effect string) []Step {
	switch {
	case d.Gone:
		return nil
	case d.Since == "" && !d.State.Final():
		return []Step{byHand("Once the deployment is over:"), retry(d.ID, effect)}
	case d.Since == "":
		return []Step{retry(d.ID, effect)}
	case d.Kind == deployment.Teardown:
		return []Step{showDeployment(d.Since, "shows how the install is since"), teardown(d.Install)}
	}
	return []Step{showDeployment(d.Since, "shows how the install is since"), deploy(d.Install)}
}
