package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Limits of the age at which a plan expires.
const (
	// PlansExpire is the default. A plan describes the customer's account at one moment. A week covers the working days
	// in which a person reads a plan, and what a person approves later is a guess.
	PlansExpire = 7 * 24 * time.Hour
	// MinPlansExpire is the shortest age. A person could not read a plan in less time.
	MinPlansExpire = time.Minute
	// MaxPlansExpire is the longest age. The customer's bucket deletes saved plans after 30 days, so an apply of an
	// older plan would fail after its approval.
	MaxPlansExpire = 28 * 24 * time.Hour
)

// PlanExpires returns when the node's plan expires. It is the zero time if no plan of the node waits for an approval or
// for its apply to start, and for a plan that an earlier release recorded without its time.
func (d Deployment) PlanExpires(n *Node) time.Time {
	if n.State != Awaiting && n.State != Approved || n.PlannedAt.IsZero() {
		return time.Time{}
	}
	return n.PlannedAt.Add(d.plansExpire())
}

func (d Deployment) plansExpire() time.Duration { return cmp.Or(d.PlansExpire, PlansExpire) }

// Due returns when the caller must apply Expire: when the first plan that waits expires. The zero time means never. A
// deployment that was canceled has no such plan.
func (d Deployment) Due() time.Time {
	var first time.Time
	for i := range d.Nodes {
		if at := d.PlanExpires(&d.Nodes[i]); first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}

// expired reports whether the node's plan waits and is too old, or has ended the node by that.
func (d Deployment) expired(n *Node, at time.Time) bool {
	end := d.PlanExpires(n)
	return n.Reason == fairlead.ReasonPlanExpired || !end.IsZero() && !at.Before(end)
}

// expire ends the nodes whose plan is too old. A deployment that planned again by itself would hold its install for ever
// if no person reads its plans.
func expire(d *Deployment, at time.Time) {
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.State.Final() || !d.expired(n, at) {
			continue
		}
		n.Message = "no person approved its plan within " + age(d.plansExpire())
		if n.State == Approved {
			n.Message = "its apply did not start within " + age(d.plansExpire()) + " after its plan"
		}
		n.State, n.Reason = NodeStopped, fairlead.ReasonPlanExpired
		if n.Lost {
			n.State = NodeLost // an earlier apply was interrupted, and its plan was not applied
		}
	}
}

// refuseExpired returns the error for an approval of a plan that expired; nil if none of the plans that it approves did.
// An approval without names approves what has not expired, if there is such a plan.
func refuseExpired(d *Deployment, names []string, at time.Time) error {
	var first *Node
	for i := range d.Nodes {
		n := &d.Nodes[i]
		switch {
		case len(names) > 0 && !slices.Contains(names, n.Component):
		case d.expired(n, at):
			first = cmp.Or(first, n)
		case len(names) == 0 && n.State == Awaiting:
			return nil
		}
	}
	if first == nil {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodePlanExpired,
		Message: fmt.Sprintf("the plan of component %s expired: it is older than %s", first.Component, age(d.plansExpire())),
		Hint:    "After the deployment has ended, plan again with {deployment.retry}.",
		Args:    fairlead.Args{Deployment: string(d.ID)},
		Details: map[string]string{"component": first.Component}}
}

// age renders a limit in the largest unit that fits.
func age(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := d / u.size; {
		case d%u.size != 0:
		case n == 1:
			return "1 " + u.name
		default:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return d.String()
}
