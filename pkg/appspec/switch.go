package appspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The text of a component's field enabled is one reference to an input.
const (
	switchStart = "${" + Inputs + "."
	switchEnd   = "}"
)

// switchPattern is the regular expression of the field enabled, in any spelling that parseText accepts.
const switchPattern = `^\$\{[ \t]*inputs\.` + fairlead.NameForm + `[ \t]*\}$`

// Switch returns the name of the input that switches the component on and off; "" if the component is always on.
func (c Component) Switch() string {
	return strings.TrimSuffix(strings.TrimPrefix(c.Enabled, switchStart), switchEnd)
}

// Off returns the names of the components that are switched off. value returns the value of an input, given or default.
func (a *App) Off(value func(input string) any) map[string]bool {
	off := map[string]bool{}
	for _, c := range a.Components {
		if c.Enabled != "" && value(c.Switch()) == false {
			off[c.Name] = true
		}
	}
	return off
}

// switchSpelling returns the canonical spelling of the field enabled, or text itself if text is not one reference to an input.
func switchSpelling(text string) string {
	leaf, errs := parseText(text, func(Reference, int) {})
	t, ok := leaf.(template)
	if len(errs) > 0 || !ok || len(t) != 1 {
		return text
	}
	if ref, ok := t[0].(Reference); ok && ref.Namespace == Inputs && len(ref.Path) == 0 {
		return ref.String()
	}
	return text
}

// checkSwitches checks the field enabled of each component, and reports each reference to an output of a component that may be
// off while the component that refers to it is on.
func checkSwitches(report reporter, a *App) {
	components := map[string]Component{}
	for _, c := range a.Components {
		components[c.Name] = c
	}
	for _, c := range a.Components {
		where := "components." + c.Name
		checkSwitch(report, where+".enabled", c, a)
		values := c.Values()
		for _, key := range slices.Sorted(maps.Keys(values)) {
			for _, ref := range values[key].References() {
				of := components[ref.Name]
				if ref.Namespace != Components || of.Enabled == "" || of.Enabled == c.Enabled || ref.Name == c.Name {
					continue
				}
				report(where+fieldOf(key)+"|"+ref.String(), "switched-reference", fmt.Sprintf("%s refers to the component %s, which is off while %s is false", ref.show(), yamlnode.Quote(of.Name), yamlnode.Printable(of.Enabled)),
					fmt.Sprintf("Switch both by the same input, or give the module ${inputs.%s} and let it work without the output.", of.Switch()))
			}
		}
	}
}

// checkSwitch checks the field enabled of a component.
func checkSwitch(report reporter, where string, c Component, a *App) {
	if c.Enabled == "" {
		return
	}
	const hint = "Write a reference to an input of type bool, such as ${inputs.monitoring}."
	name, isReference := strings.CutPrefix(c.Enabled, switchStart)
	name, closed := strings.CutSuffix(name, switchEnd)
	if !isReference || !closed || fairlead.CheckName("input", name) != nil {
		report(where, "invalid-switch", fmt.Sprintf("enabled of component %s is not a reference to an input", yamlnode.Quote(c.Name)), hint)
		return
	}
	in, ok := a.Input(name)
	switch {
	case !ok:
		names := make([]string, len(a.Inputs))
		for i, in := range a.Inputs {
			names[i] = in.Name
		}
		report(where, "unknown-reference", fmt.Sprintf("%s refers to an input that is not declared", yamlnode.Printable(c.Enabled)), yamlnode.DidYouMean(name, "inputs", names))
	case in.Type != Bool:
		report(where, "invalid-switch", fmt.Sprintf("the input %s, which switches component %s, is a %s", yamlnode.Quote(name), yamlnode.Quote(c.Name), in.Type), hint)
	case in.Sensitive:
		report(where, "invalid-switch", fmt.Sprintf("the input %s, which switches component %s, is sensitive, and a deployment shows which components it has", yamlnode.Quote(name), yamlnode.Quote(c.Name)), "Use an input that is not sensitive.")
	case !in.Required && !in.HasDefault:
		report(where, "invalid-switch", fmt.Sprintf("the input %s, which switches component %s, can be null", yamlnode.Quote(name), yamlnode.Quote(c.Name)), "Give the input a default.")
	}
}
