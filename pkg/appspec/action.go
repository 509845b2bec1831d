package appspec

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/schedule"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The limits of an app's actions.
const (
	MaxActions   = 20                // actions of one app
	MaxParams    = 50                // params of one action
	maxHooks     = 2 * MaxComponents // operations of one action: each component has two
	maxActionRun = 24 * time.Hour    // timeout of a run
)

// Action is something that people, a schedule or a deployment can run on an install. It has its own source and jobs,
// and no state. Actions and components have separate names.
type Action struct {
	Name        string `json:"name" key:"action"`
	Description string `json:"description,omitempty" check:"description" doc:"Description of the action for the people who run it."`
	Type        string `json:"type" must:"there" check:"actiontype" alias:"kind" doc:"What the action is."` // a name in component.ActionTypes
	// Source is the folder of the action, as in Component.
	Source string           `json:"source" must:"there" check:"source" alias:"path dir directory folder" doc:"The folder of the action, inside the app's folder."`
	Job    Job              `json:"job,omitzero" alias:"size resources" doc:"The size of the action's jobs. If absent: the size that the runner is configured for."`
	Params []Input          `json:"params,omitempty" check:"params" alias:"parameters inputs arguments args" doc:"The values that a run of the action gets, by name."`
	Vars   map[string]Value `json:"vars,omitempty" check:"vars" alias:"variables values with env" doc:"The variables of the action's executable: any value, with references such as ${params.NAME}, ${inputs.NAME}, ${install.name} and ${components.NAME.outputs.OUTPUT}."`
	// Image is the image in which the action's jobs run, as in Component.
	Image Value  `json:"image,omitzero" check:"ownimage" alias:"container container_image" doc:"The image in which the jobs run, by digest: HOST/NAME@sha256:DIGEST, or an output of a component of type image such as ${components.NAME.outputs.reference}. If absent: the jobs run as the runner's other jobs do."`
	Role  string `json:"role,omitempty" check:"actionrole" alias:"permissions" doc:"The role of the customer's stack that a run uses: read-only, deploy (the default) or provision."`
	// Timeout is how long a run may take; 0: as long as an apply.
	Timeout  runnerspec.Duration `json:"timeout,omitzero" alias:"timeout_minutes deadline" doc:"How long a run may take, such as 30m. If absent: as long as an apply."`
	Schedule *Schedule           `json:"schedule,omitempty" alias:"cron on" doc:"When the control plane runs the action by itself."`
	// Before and After list operations in the form of Hook. They are sorted, without repetition. At most one is set.
	Before []string `json:"before,omitempty" check:"hooks" doc:"Operations, such as web.apply: a deployment runs the action once before the first of them that has changes."`
	After  []string `json:"after,omitempty" check:"hooks" doc:"Operations, such as web.apply: a deployment runs the action once after them, if one of them had changes."`
}

// Schedule is when an action runs by itself.
type Schedule struct {
	Cron     string `json:"cron" must:"true" alias:"expression" doc:"Minute, hour, day of the month, month and day of the week, such as 0 3 * * *."`
	Timezone string `json:"timezone" must:"true" alias:"tz time_zone zone" doc:"The name of a time zone, such as Europe/Berlin or UTC."`
}

// ActionPrefix begins the name of an action among the parts of an app.
const ActionPrefix = fairlead.ActionPrefix

// Part returns the action as a component: with the action's name among the parts of an app, its source, size, image and
// variables. The part depends on the components whose outputs its variables and image refer to.
func (a Action) Part() Component {
	c := Component{Name: ActionPrefix + a.Name, Type: a.Type, Source: a.Source, Job: a.Job, Image: a.Image, Vars: a.Vars}
	for _, v := range c.Values() {
		for _, ref := range v.References() {
			if ref.Namespace == Components {
				c.DependsOn = append(c.DependsOn, ref.Name)
			}
		}
	}
	slices.Sort(c.DependsOn)
	c.DependsOn = slices.Compact(c.DependsOn)
	return c
}

// Parts returns everything of the app that has files: its components, and its actions as components.
func (a *App) Parts() []Component {
	parts := slices.Clone(a.Components)
	for _, act := range a.Actions {
		parts = append(parts, act.Part())
	}
	return parts
}

// CheckPart returns an error of KindInvalid if name cannot name a part of an app.
func CheckPart(name string) error {
	if action, ok := strings.CutPrefix(name, ActionPrefix); ok {
		return fairlead.CheckName("action", action)
	}
	return fairlead.CheckName("component", name)
}

// Action returns the action of that name.
func (a *App) Action(name string) (Action, bool) {
	for _, act := range a.Actions {
		if act.Name == name {
			return act, true
		}
	}
	return Action{}, false
}

// hookOperations are the operations of a component around which an action can run.
var hookOperations = []string{"apply", "destroy"}

// Hook splits an item of Before or After, such as "web.apply", into the component and whether the operation is its
// destroy.
func Hook(item string) (name string, destroy bool) {
	name, operation, _ := strings.Cut(item, ".")
	return name, operation == "destroy"
}

// checkActions reports the problems of all actions. It adds to edges what components and hooks wait for.
func checkActions(report reporter, a *App, names scopeNames, edges map[string]map[string]string) {
	if n := len(a.Actions); n > MaxActions {
		report("actions", "too-many-declared-actions", fmt.Sprintf("the app has %d actions, %d are allowed", n, MaxActions), "")
	}
	seen := map[string]bool{}
	for _, act := range a.Actions {
		where := "actions." + act.Name
		if seen[act.Name] {
			report(where, "duplicate-name", fmt.Sprintf("the action %s is declared twice", yamlnode.Quote(act.Name)), "")
		}
		seen[act.Name] = true
		checkAction(report, where, act, names, edges)
	}
}

func checkAction(report reporter, where string, act Action, names scopeNames, edges map[string]map[string]string) {
	checkName(report, where, "action", act.Name)
	checkDescription(report, where+".description", act.Description)
	if names := component.ActionTypes(); !slices.Contains(names, act.Type) {
		report(where+".type", "unknown-type", fmt.Sprintf("%s is not a type of action", yamlnode.Quote(act.Type)), yamlnode.DidYouMean(act.Type, "types", names))
	}
	checkSource(report, where, act.Source)
	checkJob(report, where, act.Job)
	if len(act.Params) > MaxParams {
		report(where+".params", "too-many-params", fmt.Sprintf("the action %s has %d params, %d are allowed", yamlnode.Quote(act.Name), len(act.Params), MaxParams), "")
	}
	params := map[string]Input{}
	names.params = params
	for _, p := range act.Params {
		place := where + ".params." + p.Name
		if _, twice := params[p.Name]; twice {
			report(place, "duplicate-name", fmt.Sprintf("the param %s is declared twice", yamlnode.Quote(p.Name)), "")
		}
		params[p.Name] = p
		checkInput(report, place, "param", p)
		if p.Group+p.From != "" || p.Generate != 0 {
			report(place, "unknown-field", fmt.Sprintf("the param %s has a group, a giver or a generated value, which only inputs have", yamlnode.Quote(p.Name)), "Remove the fields group, from and generate.")
		}
		if p.Required && (act.Schedule != nil || len(act.Before)+len(act.After) > 0) {
			report(place, "param-without-value", fmt.Sprintf("the param %s is required, but the action also runs by itself", yamlnode.Quote(p.Name)), "Give it a default.")
		}
	}
	needs := checkVars(report, where, act.Part(), names)
	if act.Role != "" && !slices.Contains(component.DeclaredRoles(), component.Role(act.Role)) {
		report(where+".role", "unknown-role", fmt.Sprintf("%s is not a role of an action", yamlnode.Quote(act.Role)), yamlnode.DidYouMean(act.Role, "roles", roleNames()))
	}
	if d := time.Duration(act.Timeout); d < 0 || d > maxActionRun || d%time.Second != 0 {
		report(where+".timeout", "invalid-value", fmt.Sprintf("the timeout %s is not a number of seconds up to %s", act.Timeout, maxActionRun), "")
	}
	checkSchedule(report, where+".schedule", act.Schedule)
	checkHooks(report, where, act, names.components, needs, edges)
}

func roleNames() (names []string) {
	for _, r := range component.DeclaredRoles() {
		names = append(names, string(r))
	}
	return names
}

func checkSchedule(report reporter, where string, s *Schedule) {
	if s == nil || s.Cron == "" || s.Timezone == "" {
		return // an absent field is reported by its tag
	}
	_, err := schedule.Parse(s.Cron, s.Timezone)
	switch {
	case err == nil:
	case errors.Is(err, schedule.ErrZone):
		report(where+".timezone", "unknown-timezone", fmt.Sprintf("%s is not the name of a time zone", yamlnode.Quote(s.Timezone)), "Write a name of the IANA database, such as Europe/Berlin, or UTC.")
	default:
		report(where+".cron", "invalid-cron", fmt.Sprintf("%s is not a cron expression: %s", yamlnode.Quote(s.Cron), yamlnode.Printable(err.Error())),
			"Write minute, hour, day of the month, month and day of the week: 0 3 * * * is each day at 3:00.")
	}
}

// checkHooks reports operations that do not exist. It adds to edges that a component waits for the actions before it,
// and that a hook waits for what its variables need. needs has the places of these variables.
func checkHooks(report reporter, where string, act Action, components map[string]bool, needs map[string]string, edges map[string]map[string]string) {
	if len(act.Before) > 0 && len(act.After) > 0 {
		report(where+".before", "before-and-after", fmt.Sprintf("the action %s runs before and after operations", yamlnode.Quote(act.Name)), "Declare two actions. They can have the same source.")
		return
	}
	for field, items := range map[string][]string{"before": act.Before, "after": act.After} {
		if len(items) > maxHooks {
			report(where+"."+field, "too-many-operations", fmt.Sprintf("the action names %d operations, %d are allowed", len(items), maxHooks), "")
			return
		}
		for _, item := range items {
			place := where + "." + field + "|" + item
			name, operation, _ := strings.Cut(item, ".")
			switch {
			case !slices.Contains(hookOperations, operation):
				report(place, "unknown-operation", fmt.Sprintf("%s is not an operation of a component", yamlnode.Quote(item)), "Write the component and apply or destroy, such as web.apply.")
				continue
			case !components[name]:
				report(place, "unknown-reference", fmt.Sprintf("there is no component %s", yamlnode.Quote(name)),
					yamlnode.DidYouMean(name, "components", slices.Collect(maps.Keys(components))))
				continue
			}
			if place, uses := needs[name]; uses && field == "after" && operation == "destroy" {
				report(place, "output-after-destroy", fmt.Sprintf("the action runs after the destroy of component %s, which has no outputs then", yamlnode.Quote(name)), "Run it before the destroy, or remove the reference.")
			}
			// A hook and its component may name each other only in one direction. Destroys run in the reverse order, in which
			// the outputs of other components may be gone, but no component waits for these outputs.
			if _, destroy := Hook(item); !destroy && field == "before" {
				part := ActionPrefix + act.Name
				if edges[part] == nil {
					edges[part] = maps.Clone(needs)
				}
				edges[name][part] = place
			}
		}
	}
}

// canonicalActions returns sorted copies; nil if there are none.
func canonicalActions(actions []Action) ([]Action, error) {
	if len(actions) == 0 {
		return nil, nil
	}
	out := slices.Clone(actions)
	slices.SortFunc(out, func(a, b Action) int { return strings.Compare(a.Name, b.Name) })
	for i := range out {
		a := &out[i]
		var err error
		if a.Params, err = canonicalInputs("param", a.Params); err != nil {
			return nil, err
		}
		for _, list := range []*[]string{&a.Before, &a.After} {
			*list = slices.Clone(*list)
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
	}
	return out, nil
}
