package changeset

import (
	"encoding/json"
	"slices"
	"strings"
)

// Parse returns the set that a runner reported and the control plane stored. It also reads the summaries of version 1, which
// earlier runners send. It returns nil if there is none, or if it has no form that this version knows.
func Parse(text []byte) *Set {
	var s struct {
		plain
		Resources []summary `json:"resources"`
		Outputs   []summary `json:"outputs"`
	}
	if len(text) == 0 || json.Unmarshal(text, &s) != nil {
		return nil
	}
	if s.V >= Version {
		var set Set
		if json.Unmarshal(text, &set) != nil {
			return nil
		}
		return &set
	}
	set := Set{V: Version, Changes: []Change{}, Omitted: s.Omitted}
	for _, r := range s.Resources {
		if c := r.change(); c.Action != "" {
			set.Changes = append(set.Changes, c)
		}
	}
	for _, o := range s.Outputs {
		if c := o.change(); c.Action != "" {
			c.Address = o.Name
			set.Outputs = append(set.Outputs, c)
		}
	}
	return &set
}

// summary is a change in version 1.
type summary struct {
	Address  string   `json:"address"`
	Name     string   `json:"name"` // of an output
	Type     string   `json:"type"`
	Actions  []string `json:"actions"`
	Previous string   `json:"previous"`
	Reason   string   `json:"reason"`
	Before   any      `json:"before"`
	After    any      `json:"after"`
	Omitted  bool     `json:"values_omitted"`
}

func (s summary) change() Change {
	c := Change{Address: s.Address, Kind: s.Type, Previous: s.Previous, Reason: s.Reason, Before: s.Before, After: s.After, Omitted: s.Omitted}
	switch actions := strings.Join(s.Actions, ","); actions {
	case "delete,create":
		c.Action, c.Order = Replace, DeleteFirst
	case "create,delete":
		c.Action, c.Order = Replace, CreateFirst
	case "no-op":
		if c.Previous != "" {
			c.Action = Move
		}
	default:
		c.Action = Action(actions)
	}
	before, after := asMap(c.Before), asMap(c.After)
	if before == nil || after == nil {
		return c
	}
	for name := range before {
		c.Changed = append(c.Changed, below("", name))
	}
	for name := range after {
		c.Changed = append(c.Changed, below("", name))
	}
	slices.Sort(c.Changed)
	c.Changed = slices.Compact(c.Changed)
	return c
}
