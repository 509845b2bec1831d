package appspec

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// FromCustomer is the field from of an input whose value the customer gives. "" means the vendor.
const FromCustomer = "customer"

// fromVendor is the spelling of the default in app.yaml. It is not part of the canonical form.
const fromVendor = "vendor"

// MaxInputGroups is the largest number of groups of inputs of one app.
const MaxInputGroups = 50

// maxTitle is the largest size of a group's title, in bytes.
const maxTitle = 100

// InputGroup is a group of inputs that belong together for the people who give them.
type InputGroup struct {
	Name        string `json:"name" key:"input group"`
	Title       string `json:"title,omitempty" check:"title" doc:"Title of the group. Default: its name."`
	Description string `json:"description,omitempty" check:"description" doc:"Description of the group for the people who give its inputs."`
	Order       int    `json:"order,omitempty" doc:"Place of the group among the others: lower numbers come first. Groups of the same order are sorted by name. Default: 0."`
}

// GroupsInOrder returns the groups in the order in which people see them.
func (a *App) GroupsInOrder() []InputGroup {
	groups := slices.Clone(a.InputGroups)
	slices.SortFunc(groups, func(a, b InputGroup) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	return groups
}

// checkGroups checks the groups of inputs, and that each input has a group and a giver that exist.
func checkGroups(report reporter, a *App) {
	if len(a.InputGroups) > MaxInputGroups {
		report("input_groups", "too-many-groups", fmt.Sprintf("the app has %d groups of inputs, %d are allowed", len(a.InputGroups), MaxInputGroups), "")
	}
	var names []string
	for _, g := range a.InputGroups {
		where := "input_groups." + g.Name
		checkName(report, where, "input group", g.Name)
		checkDescription(report, where+".description", g.Description)
		if len(g.Title) > maxTitle {
			report(where+".title", "too-long", fmt.Sprintf("the title is longer than %d bytes", maxTitle), "")
		}
		if slices.Contains(names, g.Name) {
			report(where, "duplicate-name", fmt.Sprintf("the input group %s is declared twice", yamlnode.Quote(g.Name)), "")
		}
		names = append(names, g.Name)
	}
	for _, in := range a.Inputs {
		if in.Group != "" && !slices.Contains(names, in.Group) {
			report("inputs."+in.Name+".group", "unknown-reference", fmt.Sprintf("there is no input group %s", yamlnode.Quote(in.Group)), yamlnode.DidYouMean(in.Group, "input groups", names))
		}
		checkGenerate(report, "inputs."+in.Name, in)
		if in.From != "" && in.From != FromCustomer {
			report("inputs."+in.Name+".from", "invalid-from", fmt.Sprintf("%s does not give inputs", yamlnode.Quote(in.From)), "Write vendor or customer.")
		}
	}
}

// givenBy returns the part of a message that names the customer as the giver of an input; "" for the vendor.
func givenBy(in Input) string {
	if in.From == FromCustomer {
		return "; the customer gives it"
	}
	return ""
}

// CheckGiven is the check of CheckInputs for an install that is not deployed yet: inputs that the customer gives may be
// missing.
func (a *App) CheckGiven(given map[string]any) error {
	lenient := App{Inputs: slices.Clone(a.Inputs)}
	for i := range lenient.Inputs {
		if in := &lenient.Inputs[i]; in.From == FromCustomer {
			in.Required = false
		}
	}
	_, err := lenient.CheckInputs(given)
	return err
}
