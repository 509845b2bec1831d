package diagnosis

import (
	"fmt"
	"strings"
)

// OfInstall returns the situations of an install.
func OfInstall(in Install) []Situation {
	var out []Situation
	if in.Runner != nil && (!in.Runner.Mode.TakesJobs() || in.Runner.Customer != nil) {
		out = OfRunner(*in.Runner)
	}
	for _, c := range in.Parts {
		if l := c.Lock; l != nil {
			out = append(out, locked(in.Name, c.Name, *l))
		}
		if (c.Unknown || c.Restored) && in.Active == "" {
			s := Situation{Kind: StateUnknown, Component: c.Name,
				What: fmt.Sprintf("An apply or destroy of component %s started at %s and did not report its end.", c.Name, at(c.Since)), Known: stateOf(c, nil)}
			if c.Restored {
				s.What = restoredWhat(c.Name)
			} else if c.Deployment != "" {
				s.Next = append(s.Next, showDeployment(c.Deployment, "shows what happened and what to do next"))
			}
			s.Next = append(s.Next, planOnly(in.Name))
			out = append(out, s)
		}
	}
	return out
}

// locked returns the situation of a locked state.
func locked(install, component string, l Lock) Situation {
	s := Situation{Component: component, Job: l.Job}
	if l.Held {
		s.Kind = Locked
		s.What = fmt.Sprintf("The state of component %s is locked by the job %s since %s%s.", component, l.Job, at(l.Since), holder(l))
		s.Known = []string{"The job is running and holds its lease. The lock cannot be removed before the job ends."}
		s.Next = []Step{showJob(l.Job, "shows what it does")}
		return s
	}
	s.Kind = LockLeft
	s.What = fmt.Sprintf("The state of component %s has a lock that the job %s took at %s%s and did not release. The job no longer holds its lease.", component, l.Job, at(l.Since), holder(l))
	s.Known = []string{"The next job of the component removes the lock by itself. Until then, the control plane still accepts a state from the old job's tool; afterwards it refuses it."}
	s.Next = []Step{unlock(install, component, l.ID)}
	return s
}

func holder(l Lock) string {
	var parts []string
	for _, w := range []string{l.Operation, l.Who} {
		if w != "" {
			parts = append(parts, w)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
