package view

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// maxResources is how many resources of one plan are listed: more are not
// read before somebody says yes.
const maxResources = 50

// Plan is the saved plan of one component.
type Plan struct {
	Component string
	Plan      wire.Plan
}

// JSON returns the wire.Plan.
func (pl Plan) JSON() any { return pl.Plan }

// Human writes what the plan would do, resource by resource.
func (pl Plan) Human(p *Page) {
	p.Line("%s: %s", Styled(p.Style.Bold(Cell(pl.Component))), Changes(pl.Plan.Changes))
	changes := resourceChanges(pl.Plan.Summary)
	for i, rc := range changes {
		if i == maxResources {
			p.Line("  … and %d more", len(changes)-i)
			break
		}
		p.Line("  %s %s", Styled(rc.symbol(p.Style)), rc.Address)
	}
}

// Lines returns what Human writes.
func (pl Plan) Lines(style Style) []string {
	page := &Page{Style: style}
	pl.Human(page)
	return strings.Split(strings.TrimSuffix(page.buf.String(), "\n"), "\n")
}

type resourceChange struct {
	Address string
	Actions []string
}

// resourceChanges reads the resources of a plan's summary that would change.
// Summaries are written by the runner, which may be newer: what is not
// understood is left out.
func resourceChanges(summary json.RawMessage) []resourceChange {
	var doc struct {
		Resources []struct {
			Address string          `json:"address"`
			Action  string          `json:"action"`
			Actions json.RawMessage `json:"actions"`
		} `json:"resources"`
	}
	if len(summary) == 0 || json.Unmarshal(summary, &doc) != nil {
		return nil
	}
	var out []resourceChange
	for _, r := range doc.Resources {
		rc := resourceChange{Address: r.Address}
		switch {
		case json.Unmarshal(r.Actions, &rc.Actions) == nil:
		case r.Action != "":
			rc.Actions = []string{r.Action}
		}
		switch {
		case rc.Address == "", len(rc.Actions) == 0:
		case len(rc.Actions) == 1 && (rc.Actions[0] == "no-op" || rc.Actions[0] == "read"):
		default:
			out = append(out, rc)
		}
	}
	return out
}

// symbol is the sign that Terraform's users know.
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
