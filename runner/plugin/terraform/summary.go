package terraform

import (
	"encoding/json"
	"reflect"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The placeholders in a summary for values that must not or cannot be shown.
const (
	sensitive = "(sensitive)"
	unknown   = "(known after apply)"
)

// The limits of a summary, in bytes of JSON. The whole plan stays with the customer; a person reads the summary before
// approving it.
const (
	maxSummary = 200 << 10
	maxValues  = 16 << 10 // of before and after of one resource
)

// summary is the JSON of a plan that the control plane gets.
type summary struct {
	V         int              `json:"v"` // 1
	Resources []resourceChange `json:"resources"`
	Outputs   []outputChange   `json:"outputs,omitempty"`
	Omitted   int              `json:"omitted,omitempty"` // number of changes left out because the summary is full
}

type resourceChange struct {
	Address  string   `json:"address"`
	Type     string   `json:"type"`
	Actions  []string `json:"actions"`            // the tool's names: create, update, delete, read, forget
	Previous string   `json:"previous,omitempty"` // address before a move
	Reason   string   `json:"reason,omitempty"`   // the tool's reason for these actions, if it gives one
	Before   any      `json:"before,omitempty"`   // for an update: only the attributes that change
	After    any      `json:"after,omitempty"`
	Omitted  bool     `json:"values_omitted,omitempty"`
}

type outputChange struct {
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
	Before  any      `json:"before,omitempty"`
	After   any      `json:"after,omitempty"`
}

// summarize counts a plan's changes and reduces the plan to what may leave the customer's account: the changes with
// sensitive values masked. It masks the values that the tool marks as sensitive, and the job's secrets in all other values.
func summarize(p *shownPlan, mask func(string) string) (wire.Changes, json.RawMessage, error) {
	var c wire.Changes
	s := summary{V: 1, Resources: []resourceChange{}}
	size := 0
	fits := func(v any) (bool, error) {
		b, err := json.Marshal(v)
		if err != nil {
			return false, err
		}
		if size+len(b) > maxSummary {
			s.Omitted++
			return false, nil
		}
		size += len(b) + 1
		return true, nil
	}
	for _, r := range p.ResourceChanges {
		if r.Change == nil || r.Change.Actions.NoOp() && r.PreviousAddress == "" && r.Change.Importing == nil {
			continue
		}
		a := r.Change.Actions
		switch {
		case a.Replace():
			c.Add++
			c.Destroy++
		case a.Create():
			c.Add++
		case a.Update():
			c.Change++
		case a.Delete():
			c.Destroy++
		}
		e := resourceChange{Address: r.Address, Type: r.Type, Actions: actions(a), Previous: r.PreviousAddress, Reason: string(r.ActionReason)}
		e.Before, e.After = values(r.Change, mask)
		if b, err := json.Marshal([]any{e.Before, e.After}); err != nil {
			return c, nil, err
		} else if len(b) > maxValues {
			e.Before, e.After, e.Omitted = nil, nil, true
		}
		ok, err := fits(e)
		if err != nil {
			return c, nil, err
		}
		if ok {
			s.Resources = append(s.Resources, e)
		}
	}
	var names []string
	for name := range p.OutputChanges {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		o := p.OutputChanges[name]
		if o == nil || o.Actions.NoOp() {
			continue
		}
		c.Outputs = true
		e := outputChange{Name: name, Actions: actions(o.Actions)}
		e.Before, e.After = values(o, mask)
		ok, err := fits(e)
		if err != nil {
			return c, nil, err
		}
		if ok {
			s.Outputs = append(s.Outputs, e)
		}
	}
	b, err := json.Marshal(s)
	return c, b, err
}

func actions(a tfjson.Actions) []string {
	out := []string{}
	for _, v := range a {
		out = append(out, string(v))
	}
	return out
}

// values returns the masked values before and after the change. For an update it returns only the attributes that differ.
func values(c *tfjson.Change, mask func(string) string) (before, after any) {
	before = masked(c.Before, nil, c.BeforeSensitive, mask)
	after = masked(c.After, c.AfterUnknown, c.AfterSensitive, mask)
	b, ok1 := before.(map[string]any)
	a, ok2 := after.(map[string]any)
	if !ok1 || !ok2 {
		return before, after
	}
	// Compare before masking: two different secrets look the same afterwards.
	rawBefore, _ := c.Before.(map[string]any)
	rawAfter, _ := c.After.(map[string]any)
	unknowns, _ := c.AfterUnknown.(map[string]any)
	for name := range rawBefore {
		if _, u := unknowns[name]; !hasUnknown(unknowns[name], u) && reflect.DeepEqual(rawBefore[name], rawAfter[name]) {
			delete(b, name)
			delete(a, name)
		}
	}
	return b, a
}

// hasUnknown reports whether marks contains the value true. marks has the shape of a value.
func hasUnknown(marks any, there bool) bool {
	if !there {
		return false
	}
	switch m := marks.(type) {
	case bool:
		return m
	case []any:
		return slices.ContainsFunc(m, func(e any) bool { return hasUnknown(e, true) })
	case map[string]any:
		for _, e := range m {
			if hasUnknown(e, true) {
				return true
			}
		}
	}
	return false
}

// masked returns v with unknown and secret values replaced. The marks have the shape of the value. A true in the marks means
// that all values below it are unknown or secret.
func masked(v, unknownMarks, secretMarks any, mask func(string) string) any {
	if secretMarks == true {
		return sensitive
	}
	if unknownMarks == true {
		return unknown
	}
	switch v := v.(type) {
	case string:
		return mask(v)
	case json.Number:
		if m := mask(v.String()); m != v.String() {
			return m
		}
		return v
	case []any:
		out := make([]any, 0, len(v))
		for i := range max(len(v), lenOf(unknownMarks)) {
			out = append(out, masked(at(v, i), at(unknownMarks, i), at(secretMarks, i), mask))
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[mask(name)] = masked(e, of(unknownMarks, name), of(secretMarks, name), mask)
		}
		addUnknown(out, unknownMarks, secretMarks)
		return out
	case nil:
		// A value that is partly unknown is absent from the plan.
		if m, ok := unknownMarks.(map[string]any); ok && hasUnknown(m, true) {
			out := map[string]any{}
			addUnknown(out, unknownMarks, secretMarks)
			return out
		}
	}
	return v
}

// addUnknown adds the attributes that appear only in the marks.
func addUnknown(out map[string]any, unknownMarks, secretMarks any) {
	m, _ := unknownMarks.(map[string]any)
	for name, e := range m {
		if _, ok := out[name]; ok || !hasUnknown(e, true) {
			continue
		}
		out[name] = unknown
		if of(secretMarks, name) == true {
			out[name] = sensitive
		}
	}
}

func lenOf(v any) int {
	s, _ := v.([]any)
	return len(s)
}

func at(v any, i int) any {
	if s, ok := v.([]any); ok && i < len(s) {
		return s[i]
	}
	return nil
}

func of(v any, name string) any {
	if m, ok := v.(map[string]any); ok {
		return m[name]
	}
	return nil
}
