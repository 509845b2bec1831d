package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Deployments is a listing of deployments.
type Deployments []wire.Deployment

// JSON returns an array of wire.Deployment.
func (ds Deployments) JSON() any { return array(ds) }

// Human writes a table.
func (ds Deployments) Human(p *Page) {
	table(p, []string{"ID", "INSTALL", "KIND", "STATE", "CREATED", "TOOK", "VERSION", "BY"}, ds, func(d wire.Deployment) []string {
		took := "-"
		if d.FinishedAt != nil {
			took = Seconds(d.FinishedAt.Sub(d.CreatedAt))
		}
		by := "-"
		if d.CreatedBy != nil {
			by = d.CreatedBy.Name
		}
		return []string{d.ID, d.Install, kind(d), d.State, Time(d.CreatedAt), took, versionCell(d.Version, d.Names), by}
	})
}

func kind(d wire.Deployment) string {
	if d.Action != "" {
		return d.Kind + " " + d.Action
	}
	if d.PlanOnly {
		return d.Kind + " (plan only)"
	}
	return d.Kind
}

// Deployment is one deployment.
type Deployment wire.Deployment

// JSON returns the wire.Deployment.
func (d Deployment) JSON() any { return wire.Deployment(d) }

// Human writes the deployment, a table of its components, and its situations.
func (d Deployment) Human(p *Page) {
	p.Fields([2]string{"Deployment", d.ID}, [2]string{"Install", d.Install}, [2]string{"App", d.App},
		[2]string{"Version", versionField(d.Version, d.Names)}, [2]string{"Kind", kind(wire.Deployment(d))}, [2]string{"State", d.State},
		[2]string{"Retry of", d.RetryOf}, [2]string{"Created", Time(d.CreatedAt)},
		[2]string{"Took", took(wire.Deployment(d))}, [2]string{"Created by", actor(d.CreatedBy)},
		[2]string{"Approved by", approvers(d.Components)}, [2]string{"Canceled by", actor(d.CanceledBy)}, [2]string{"Plan expires", planExpires(d.Components)})
	p.Gap()
	explained := map[string]bool{} // components whose message is below the table
	for _, s := range d.Situations {
		explained[s.Component] = true
	}
	table(p, []string{"COMPONENT", "STATE", "PLAN", "JOB", "MESSAGE"}, d.Components, func(c wire.DeploymentComponent) []string {
		changes := "-"
		if c.Changes != nil {
			changes = Changes(*c.Changes)
		}
		job := c.Job
		if job == "" {
			job = c.PlanJob
		}
		message := c.Message
		if explained[c.Name] {
			message = c.Reason
		}
		return []string{c.Name, c.State, changes, orDash(job), message}
	})
	situations(p, d.Situations)
}

// planExpires returns when the first plan that waits expires; "" if no plan waits.
func planExpires(components []wire.DeploymentComponent) string {
	var first *time.Time
	for _, c := range components {
		if at := c.PlanExpiresAt; at != nil && (first == nil || at.Before(*first)) {
			first = at
		}
	}
	if first == nil {
		return ""
	}
	return Time(*first)
}

// actor names who made a request, with the kind; "" if a is nil.
func actor(a *wire.Actor) string {
	if a == nil {
		return ""
	}
	return a.Kind + " " + a.Name
}

// approvers names the tokens that approved plans. If there are several, each has
// the components that it approved.
func approvers(components []wire.DeploymentComponent) string {
	var names []string
	of := map[string][]string{}
	for _, c := range components {
		if who := actor(c.ApprovedBy); who != "" {
			if of[who] == nil {
				names = append(names, who)
			}
			of[who] = append(of[who], c.Name)
		}
	}
	if len(names) > 1 {
		for i, who := range names {
			names[i] = fmt.Sprintf("%s (%s)", who, strings.Join(of[who], ", "))
		}
	}
	return strings.Join(names, ", ")
}

func took(d wire.Deployment) string {
	if d.FinishedAt == nil {
		return ""
	}
	return Seconds(d.FinishedAt.Sub(d.CreatedAt))
}

// Changes summarizes what a plan would change.
func Changes(c wire.Changes) string {
	if c.Add+c.Change+c.Destroy+c.Run == 0 {
		if c.Outputs {
			return "outputs change"
		}
		return "no changes"
	}
	var parts []string
	for _, n := range []struct {
		count int
		verb  string
	}{{c.Add, "add"}, {c.Change, "change"}, {c.Destroy, "destroy"}, {c.Run, "run"}} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n.count, n.verb))
		}
	}
	return strings.Join(parts, ", ")
}

// Behind reports whether the deployment waits for another deployment that awaits
// approval. Only a person can end this wait.
func Behind(d wire.Deployment) bool {
	return d.State == "queued" && d.Ahead != nil && d.Ahead.State == "awaiting-approval"
}

// Blocker describes the wait of a deployment for which Behind is true. What names
// the deployment ahead of it, next the commands that end the wait.
func Blocker(d wire.Deployment) (what, next string) {
	a := d.Ahead
	what = fmt.Sprintf("deployment %s waits for deployment %s, which awaits approval since %s", d.ID, a.ID, a.Since.UTC().Format("2006-01-02 15:04:05 UTC"))
	return what, fmt.Sprintf("`fairlead deployment approve %s` approves its plans, `fairlead deployment cancel %s` rejects them. Deployment %s then starts by itself.", a.ID, a.ID, d.ID)
}

// Outcome is the result of a deployment that the command followed to its end.
type Outcome struct {
	Deployment wire.Deployment
	Outputs    *wire.Outputs // nil unless the deployment succeeded
	Plans      []Plan        // of a plan-only deployment
}

// JSON returns {"deployment", "outputs", "plans"}. Outputs has the form of
// `install outputs`; plans is keyed by component. Both are omitted if empty.
func (o Outcome) JSON() any {
	out := struct {
		Deployment wire.Deployment      `json:"deployment"`
		Outputs    any                  `json:"outputs,omitempty"`
		Plans      map[string]wire.Plan `json:"plans,omitempty"`
	}{Deployment: o.Deployment}
	if o.Outputs != nil {
		out.Outputs = Outputs(*o.Outputs).JSON()
	}
	for _, plan := range o.Plans {
		if out.Plans == nil {
			out.Plans = map[string]wire.Plan{}
		}
		out.Plans[plan.Component] = plan.Plan
	}
	return out
}

// NotPlanned reports whether a plan-only deployment skipped the component because
// it needs outputs that are not known yet.
func NotPlanned(c wire.DeploymentComponent) bool {
	return c.State == "skipped" && c.Reason == string(fairlead.ReasonNeedsOutputs)
}

// Human writes the plans, the components that were not planned, and the outputs.
func (o Outcome) Human(p *Page) {
	for _, plan := range o.Plans {
		plan.Human(p)
	}
	if o.Deployment.PlanOnly {
		skipped := 0
		for _, c := range o.Deployment.Components {
			if c.State == "skipped" {
				skipped++
				p.Line("%s: %s", Styled(p.Style.Bold(Cell(c.Name))), c.Message)
			}
		}
		if all := len(o.Deployment.Components); skipped > 0 {
			p.Line("%d of %d components not planned", skipped, all)
		}
	}
	if o.Outputs != nil {
		Outputs(*o.Outputs).Human(p)
	}
}

// Started is a deployment that the command does not wait for.
type Started wire.Deployment

// JSON returns {"deployment"}, as an Outcome without outputs and plans.
func (s Started) JSON() any { return Outcome{Deployment: wire.Deployment(s)}.JSON() }

// Human writes only the id, so that it can be piped.
func (s Started) Human(p *Page) { p.Line("%s", s.ID) }

// CancelingDeployment is a deployment that was canceled or waits for its running
// jobs to stop.
type CancelingDeployment wire.Deployment

// JSON returns the wire.Deployment.
func (d CancelingDeployment) JSON() any { return wire.Deployment(d) }

// Human writes one line.
func (d CancelingDeployment) Human(p *Page) { canceling(p, "deployment", d.ID, d.State) }

// CancelingJob is a job that was canceled or is stopping.
type CancelingJob wire.Job

// JSON returns the wire.Job.
func (j CancelingJob) JSON() any { return wire.Job(j) }

// Human writes one line.
func (j CancelingJob) Human(p *Page) { canceling(p, "job", j.ID, j.State) }

func canceling(p *Page, noun, id, state string) {
	if state == "canceled" {
		p.Line("%s Canceled %s %s", Styled(p.Style.Good("✓")), noun, id)
		return
	}
	p.Line("%s %s is %s: running tools are interrupted and save their states", noun, id, state)
}
