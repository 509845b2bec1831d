package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Installs is a listing of installs.
type Installs []wire.Install

// JSON returns an array of wire.Install.
func (is Installs) JSON() any { return array(is) }

// Human writes a table.
func (is Installs) Human(p *Page) {
	table(p, []string{"NAME", "APP", "RUNNER", "STATE", "COMPONENTS", "RUNNING DEPLOYMENT", "CREATED"}, is, func(in wire.Install) []string {
		present := 0
		for _, c := range in.Components {
			if c.State != "absent" {
				present++
			}
		}
		return []string{in.Name, in.App, orDash(in.Runner), in.State, fmt.Sprint(present), orDash(in.Deployment), p.Ago(in.CreatedAt)}
	})
}

// Install is one install.
type Install wire.Install

// JSON returns the wire.Install.
func (in Install) JSON() any { return wire.Install(in) }

// Human writes the install, its inputs, components, variables and situations.
func (in Install) Human(p *Page) {
	p.Fields([2]string{"Install", in.Name}, [2]string{"App", in.App}, [2]string{"Group", in.Group}, [2]string{"Labels", labels(in.Labels)}, [2]string{"Runner", runnerOf(in)},
		[2]string{"Sandbox", sandboxOfInstall(in.Sandbox)}, [2]string{"State", in.State}, [2]string{"Runner's stack", in.Stack}, [2]string{"Running", in.Deployment}, [2]string{"State is moved by", in.Moving},
		[2]string{"Queued", strings.Join(in.Queued, ", ")},
		[2]string{"Secrets", secretsReader(wire.Install(in))}, [2]string{"Created", Time(in.CreatedAt)}, [2]string{"Id", in.ID})
	effective := in.Effective
	if effective == nil {
		effective = &wire.Effective{}
	}
	effectives(p, []string{"INPUT"}, [][]string{nil}, []map[string]wire.EffectiveValue{effective.Inputs})
	if len(in.Components) > 0 {
		p.Gap()
		in.components(p)
	}
	var names [][]string
	var vars []map[string]wire.EffectiveValue
	for _, name := range sortedKeys(effective.Components) {
		names, vars = append(names, []string{name}), append(vars, effective.Components[name])
	}
	effectives(p, []string{"COMPONENT", "VARIABLE"}, names, vars)
	effectives(p, []string{"ENVIRONMENT"}, [][]string{nil}, []map[string]wire.EffectiveValue{effective.Environment})
	if len(effective.Off) > 0 {
		p.Gap()
		p.Line("Switched off by an input: %s", strings.Join(effective.Off, ", "))
	}
	missingInputs(p, in.MissingInputs)
	sandboxWarning(p, in.Sandbox)
	secrets(p, in.CustomerSecrets)
	in.undeployed(p, effective)
	situations(p, in.Situations)
}

// secretsReader states who can read the secrets of the install.
func secretsReader(in wire.Install) string {
	switch {
	case in.Key == nil && in.KeyExpected:
		return "the runner has not reported the key of the install yet"
	case in.Key == nil:
		return "readable by the control plane (the runner has no install key)"
	case in.Key.Changed != nil:
		return "encrypted with " + in.Key.Fingerprint + "; the key has changed to " + in.Key.Changed.Fingerprint + " and is not used before a person accepts it"
	}
	return "encrypted with " + in.Key.Fingerprint
}

// effectives writes a table of values with their sources. Each row of groups[i]
// begins with the cells of leads[i].
func effectives(p *Page, header []string, leads [][]string, groups []map[string]wire.EffectiveValue) {
	var rows [][]string
	for i, group := range groups {
		for _, name := range sortedKeys(group) {
			v := group[name]
			shown := "-"
			switch {
			case v.Sensitive && len(v.From) > 0:
				shown = "(sensitive)"
			case v.Value != nil:
				shown = clipped(value(v.Value), "`fairlead install show NAME --json` prints all")
			}
			rows = append(rows, append(append([]string{}, leads[i]...), name, shown, orDash(strings.Join(v.From, ", "))))
		}
	}
	if len(rows) > 0 {
		p.Gap()
		p.Table(append(append([]string{}, header...), "VALUE", "FROM"), rows)
	}
}

// undeployed writes a line for each component that the next deployment would change.
func (in Install) undeployed(p *Page, e *wire.Effective) {
	if len(e.Undeployed) == 0 {
		return
	}
	made := map[string]string{}
	for _, c := range in.Components {
		made[c.Name] = versionCell(c.Version, c.Names)
	}
	var order []string
	what := map[string][]string{}
	for _, u := range e.Undeployed {
		text := ""
		switch u.Kind {
		case "new":
			text = "not deployed yet"
		case "removed":
			text = "no longer part of the app"
		case "off":
			text = "switched off, and not destroyed yet"
		case "version":
			text = fmt.Sprintf("version %s → %s", made[u.Component], versionCell(e.Version, e.Names))
		case "variable":
			text = "variable " + u.Name
		case "environment":
			text = "environment variables"
		default: // a newer control plane may send other kinds
			text = u.Kind
		}
		if what[u.Component] == nil {
			order = append(order, u.Component)
		}
		what[u.Component] = append(what[u.Component], text)
	}
	p.Gap()
	p.Line("Changed, not deployed:")
	for _, name := range order {
		p.Line("  %s: %s", name, strings.Join(what[name], ", "))
	}
	p.Line("  `fairlead install deploy %s --plan-only` shows what a deployment would change.", in.Name)
}

// runnerOf names the runner of an install, or how the first deployment chooses it.
func runnerOf(in Install) string {
	switch {
	case in.Bound:
		return in.Runner
	case in.Runner == "":
		return "chosen by the first deployment"
	}
	return in.Runner + " (from the first deployment on)"
}

func labels(m map[string]string) string {
	var all []string
	for _, key := range sortedKeys(m) {
		all = append(all, key+"="+m[key])
	}
	return strings.Join(all, ", ")
}

func (in Install) components(p *Page) {
	table(p, []string{"COMPONENT", "STATE", "VERSION", "CHANGED", "LOCKED BY"}, in.Components, func(c wire.InstallComponent) []string {
		lock := orDash(c.LockedBy)
		if l := c.Lock; l != nil && !l.Held {
			lock = l.Job + " (left)"
		}
		return []string{c.Name, c.State, versionCell(c.Version, c.Names), p.Ago(c.UpdatedAt), lock}
	})
}

// Outputs holds the outputs of an install.
type Outputs wire.Outputs

// JSON returns {component: {output: value}}. It omits values that were not requested.
func (o Outputs) JSON() any {
	out := make(map[string]map[string]json.RawMessage, len(o.Components))
	for component, outputs := range o.Components {
		values := map[string]json.RawMessage{}
		for name, output := range outputs {
			if len(output.Value) > 0 {
				values[name] = output.Value
			}
		}
		out[component] = values
	}
	return out
}

// maxShown is the size of the longest value that a table shows, in bytes.
const maxShown = 1000

// clipped cuts a value that is longer than maxShown and adds its size and the hint.
func clipped(shown, hint string) string {
	if len(shown) <= maxShown {
		return shown
	}
	return fmt.Sprintf("%s… (%d bytes; %s)", strings.ToValidUTF8(shown[:maxShown], ""), len(shown), hint)
}

// Human writes a table. It shows a sensitive value as "(sensitive)" and cuts a value
// that is longer than maxShown.
func (o Outputs) Human(p *Page) {
	var rows [][]string
	for _, component := range sortedKeys(o.Components) {
		outputs := o.Components[component]
		for _, name := range sortedKeys(outputs) {
			shown := "(sensitive)"
			if len(outputs[name].Value) > 0 {
				shown = value(outputs[name].Value)
			}
			shown = clipped(shown, "`fairlead install outputs NAME --json` prints all")
			rows = append(rows, []string{component, name, shown})
		}
	}
	p.Table([]string{"COMPONENT", "OUTPUT", "VALUE"}, rows)
}

// Hidden returns the outputs whose values were not requested, as "component.output".
func (o Outputs) Hidden() []string {
	var names []string
	for _, component := range sortedKeys(o.Components) {
		for _, name := range sortedKeys(o.Components[component]) {
			if len(o.Components[component][name].Value) == 0 {
				names = append(names, component+"."+name)
			}
		}
	}
	return names
}

// Forgotten reports that an install's records were deleted.
type Forgotten struct {
	Name      string `json:"install"`
	Abandoned bool   `json:"abandoned"`
}

// JSON returns {"install", "abandoned"}.
func (f Forgotten) JSON() any { return f }

// Human writes one line.
func (f Forgotten) Human(p *Page) {
	p.Line("%s Forgot install %s", Styled(p.Style.Good("✓")), f.Name)
}

// InstallChange reports that an install was created or updated.
type InstallChange struct {
	Install wire.Install
	Verb    string                     // "Created" or "Updated"
	Next    string                     // the next step; may be empty
	Before  *wire.Install              // the install before the update; nil if it is new
	Given   map[string]json.RawMessage // inputs of the command; null resets an input to its default
}

// JSON returns the wire.Install.
func (c InstallChange) JSON() any { return c.Install }

// Human writes one line, the changes, and the next step.
func (c InstallChange) Human(p *Page) {
	on := ""
	if c.Install.Runner != "" {
		on = " on runner " + c.Install.Runner
	}
	p.Line("%s %s install %s of app %s%s", Styled(p.Style.Good("✓")), c.Verb, c.Install.Name, c.Install.App, on)
	if c.Before != nil {
		for _, name := range sortedKeys(c.Given) {
			p.Line("  %s: %s", name, inputChange(c.Before.Inputs[name], c.Install.Inputs[name]))
		}
		if before, now := c.Before.Runner, c.Install.Runner; before != now {
			p.Line("  runner: %s → %s", cmp.Or(before, "by rules"), cmp.Or(now, "by rules"))
		}
	}
	missingInputs(p, c.Install.MissingInputs)
	sandboxWarning(p, c.Install.Sandbox)
	secrets(p, c.Install.CustomerSecrets)
	if c.Next != "" {
		p.Line("  %s", c.Next)
	}
}

// missingInputs writes the required inputs that are not set, and who gives each.
func missingInputs(p *Page, missing []wire.MissingInput) {
	if len(missing) == 0 {
		return
	}
	p.Gap()
	table(p, []string{"MISSING INPUT", "FROM", "DESCRIPTION"}, missing, func(in wire.MissingInput) []string {
		return []string{in.Name, in.From, in.Description}
	})
}

// inputChange describes the change of an input's value. Nil means the default.
func inputChange(before, now json.RawMessage) string {
	const sensitive = `"(sensitive)"` // the API's text for a sensitive value
	switch {
	case before == nil && now == nil:
		return "default, unchanged"
	case string(before) == sensitive && string(now) == sensitive:
		return "(sensitive), changed" // assumed: the API does not return the old value
	case bytes.Equal(before, now):
		return value(now) + ", unchanged"
	case now == nil:
		return value(before) + " → default"
	case before == nil:
		return "default → " + value(now)
	}
	return value(before) + " → " + value(now)
}

// Unlocked reports that the state lock of a component was removed.
type Unlocked struct {
	Install   string `json:"install"`
	Component string `json:"component"`
	Lock      string `json:"lock_id,omitempty"`
}

// JSON returns {"install", "component", "lock_id"}.
func (u Unlocked) JSON() any { return u }

// Human writes one line.
func (u Unlocked) Human(p *Page) {
	p.Line("%s Unlocked the state of component %s of install %s", Styled(p.Style.Good("✓")), u.Component, u.Install)
}

// Pushed reports that a state was uploaded and is now the current one.
type Pushed struct {
	Install string
	State   wire.PushedState
}

// JSON returns the wire.PushedState.
func (s Pushed) JSON() any { return s.State }

// Human writes one line and the next step.
func (s Pushed) Human(p *Page) {
	p.Line("%s The state of component %s of install %s is now the pushed one, serial %d", Styled(p.Style.Good("✓")), s.State.Component, s.Install, s.State.Serial)
	p.Line("  `fairlead install deploy %s --plan-only` compares it with the existing resources.", s.Install)
}
