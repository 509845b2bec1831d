package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
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
	changes, more := resourceChanges(pl.Plan.Summary)
	if len(changes) > maxResources {
		more += len(changes) - maxResources
		changes = changes[:maxResources]
	}
	for _, rc := range changes {
		p.Line("  %s %s%s", Styled(rc.symbol(p.Style)), rc.Address, rc.attributes())
	}
	if more > 0 {
		p.Line("  … and %d more", more)
	}
}

// Lines returns the text of Human as lines.
func (pl Plan) Lines(style Style) []string {
	page := &Page{Style: style}
	pl.Human(page)
	return strings.Split(strings.TrimSuffix(page.buf.String(), "\n"), "\n")
}

type resourceChange struct {
	Address       string
	Actions       []string
	Before, After map[string]json.RawMessage // the changed attributes before and after an update
}

// resourceChanges returns the resources that the plan would change, and the number of
// resources that the runner omitted from the plan's summary. The runner may be newer
// than the CLI, so resourceChanges skips parts of the summary that it does not
// understand.
func resourceChanges(summary json.RawMessage) ([]resourceChange, int) {
	var doc struct {
		Resources []struct {
			Address string          `json:"address"`
			Actions []string        `json:"actions"`
			Before  json.RawMessage `json:"before"`
			After   json.RawMessage `json:"after"`
		} `json:"resources"`
		Omitted int `json:"omitted"`
	}
	if len(summary) == 0 || json.Unmarshal(summary, &doc) != nil {
		return nil, 0
	}
	var out []resourceChange
	for _, r := range doc.Resources {
		rc := resourceChange{Address: r.Address, Actions: r.Actions}
		switch {
		case rc.Address == "", len(rc.Actions) == 0:
		case len(rc.Actions) == 1 && (rc.Actions[0] == "no-op" || rc.Actions[0] == "read"):
		default:
			if json.Unmarshal(r.Before, &rc.Before) != nil || json.Unmarshal(r.After, &rc.After) != nil {
				rc.Before, rc.After = nil, nil // the values are not JSON objects, so they have no attribute names
			}
			out = append(out, rc)
		}
	}
	return out, doc.Omitted
}

// maxAttributes is the maximum number of attributes that the CLI names for one resource.
const maxAttributes = 6

// attributes returns the names of the attributes that an update changes, or "" for
// other actions.
func (rc resourceChange) attributes() string {
	if rc.Before == nil || rc.After == nil {
		return ""
	}
	all := maps.Clone(rc.Before)
	maps.Copy(all, rc.After)
	names := sortedKeys(all)
	if len(names) > maxAttributes {
		names = append(names[:maxAttributes], fmt.Sprintf("and %d more", len(names)-maxAttributes))
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// symbol returns the sign that Terraform prints for the actions.
func (rc resourceChange) symbol(s Style) string {
	switch actions := strings.Join(rc.Actions, ","); actions {
	case "create":
		return s.Good("  +")
	case "update":
		return s.Warn("  ~")
	case "delete", "destroy":
		return s.Bad("  -")
	case "delete,create", "replace":
		return s.Bad("-") + "/" + s.Good("+")
	case "create,delete":
		return s.Good("+") + "/" + s.Bad("-")
	default:
		return fmt.Sprintf("%3s", Cell(actions))
	}
}
