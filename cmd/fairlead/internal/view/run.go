package view

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Actions is a listing of an install's actions.
type Actions []wire.InstallAction

// JSON returns an array of wire.InstallAction.
func (as Actions) JSON() any { return array(as) }

// Human writes a table, and the reasons of skipped runs below it.
func (as Actions) Human(p *Page) {
	table(p, []string{"ACTION", "RUNS", "NEXT", "PARAMS", "DESCRIPTION"}, as, func(a wire.InstallAction) []string {
		next := "-"
		if a.NextRun != nil {
			next = Time(*a.NextRun)
		}
		params := make([]string, len(a.Params))
		for i, in := range a.Params {
			if params[i] = in.Name; in.Required {
				params[i] += " (required)"
			}
		}
		return []string{a.Name, runs(a.AppAction), next, orDash(strings.Join(params, ", ")), a.Description}
	})
	for _, a := range as {
		if s := a.Skipped; s != nil {
			p.Gap()
			p.Line("%s did not run at %s: %s", a.Name, Time(s.At), s.Message)
		}
	}
}

// runs describes what starts the action besides a person.
func runs(a wire.AppAction) string {
	var all []string
	if s := a.Schedule; s != nil {
		all = append(all, s.Cron+" "+s.Timezone)
	}
	if len(a.Before) > 0 {
		all = append(all, "before "+strings.Join(a.Before, ", "))
	}
	if len(a.After) > 0 {
		all = append(all, "after "+strings.Join(a.After, ", "))
	}
	if all == nil {
		return "by hand"
	}
	return strings.Join(all, "; ")
}

// Runs is a listing of the runs of an action.
type Runs []wire.Deployment

// JSON returns an array of wire.Deployment.
func (ds Runs) JSON() any { return array(ds) }

// Human writes a table.
func (ds Runs) Human(p *Page) {
	table(p, []string{"ID", "TRIGGER", "STATE", "CREATED", "TOOK", "VERSION", "JOB", "BY"}, ds, func(d wire.Deployment) []string {
		by, job := "-", "-"
		if d.CreatedBy != nil {
			by = d.CreatedBy.Name
		}
		for _, c := range d.Components {
			job = orDash(c.Job)
		}
		return []string{d.ID, d.Trigger, d.State, Time(d.CreatedAt), orDash(took(d)), short(d.Version), job, by}
	})
}
