package view

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
)

// maxResources is the maximum number of resources that the CLI lists for one plan. A
// person does not read more resources before they approve the plan.
const maxResources = 50

// Plan is the saved plan of one component.
type Plan struct {
	Component string
	Plan      wire.Plan
}

// JSON returns the wire.Plan.
func (pl Plan) JSON() any { return pl.Plan }

// Human writes the changes of the plan, resource by resource.
func (pl Plan) Human(p *Page) {
	p.Line("%s: %s", Styled(p.Style.Bold(Cell(pl.Component))), Changes(pl.Plan.Changes))
	if rule := pl.Plan.NeedsSignature; rule != "" {
		p.Line("  needs an approval that the customer signs: rule %s of its policy", rule)
	}
	set := pl.Plan.ChangeSet
	if set == nil {
		return
	}
	shown := make([]changeset.Change, 0, len(set.Changes))
	for _, c := range set.Changes {
		if c.Action != changeset.Read { // a data source, which changes nothing
			shown = append(shown, c)
		}
	}
	for _, m := range set.Fetched {
		p.Line("  fetched %s from %s", m.Address, fetchedFrom(m))
	}
	more := set.Omitted
	if len(shown) > maxResources {
		more += len(shown) - maxResources
		shown = shown[:maxResources]
	}
	for _, c := range shown {
		p.Line("  %s %s%s", Styled(symbol(p.Style, c)), c.Address, notes(c))
	}
	if more > 0 {
		p.Line("  … and %d more", more)
	}
}

// fetchedFrom returns where a module is from, and the version or the commit, if there is one.
func fetchedFrom(m changeset.Module) string {
	switch {
	case m.Version != "":
		return m.Source + " (version " + m.Version + ")"
	case m.Commit != "":
		return fmt.Sprintf("%s (commit %.12s)", m.Source, m.Commit)
	}
	return m.Source
}

// Lines returns the text of Human as lines.
func (pl Plan) Lines(style Style) []string {
	page := &Page{Style: style}
	pl.Human(page)
	return strings.Split(strings.TrimSuffix(page.buf.String(), "\n"), "\n")
}

// maxAttributes is the maximum number of attributes that the CLI names for one resource.
const maxAttributes = 6

// notes returns the attributes that differ, the reason, and what else a person must know about a change, or "".
func notes(c changeset.Change) string {
	names := make([]string, 0, len(c.Changed))
	for _, pointer := range c.Changed {
		if name := changeset.Path(pointer); name != "" {
			names = append(names, name)
		}
	}
	if len(names) > maxAttributes {
		names = append(names[:maxAttributes], fmt.Sprintf("and %d more", len(names)-maxAttributes))
	}
	if image := ranIn(c); image != "" {
		names = append([]string{"in " + image}, names...)
	}
	switch {
	case c.Action == changeset.Move:
		names = append([]string{"was " + c.Previous}, names...)
	case c.Unverified:
		names = append(names, "unverified")
	}
	if c.Reason != "" {
		names = append(names, strings.ReplaceAll(c.Reason, "_", " ")) // tools have identifiers, such as replace_because_tainted
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// ranIn returns the image in which a program would run; "": it runs as the runner's other programs do.
func ranIn(c changeset.Change) string {
	if c.Action != changeset.Run {
		return ""
	}
	var after struct {
		Image string `json:"image"`
	}
	b, err := json.Marshal(c.After)
	if err != nil || json.Unmarshal(b, &after) != nil {
		return "" // the program of a plugin has another form
	}
	return after.Image
}

// symbol returns the sign that Terraform prints for an action, or its name.
func symbol(s Style, c changeset.Change) string {
	switch c.Action {
	case changeset.Create:
		return s.Good("  +")
	case changeset.Update:
		return s.Warn("  ~")
	case changeset.Delete:
		return s.Bad("  -")
	case changeset.Replace:
		if c.Order == changeset.CreateFirst {
			return s.Good("+") + "/" + s.Bad("-")
		}
		return s.Bad("-") + "/" + s.Good("+")
	default:
		return fmt.Sprintf("%3s", Cell(string(c.Action)))
	}
}
