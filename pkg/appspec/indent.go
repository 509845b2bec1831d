package appspec

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/yamldoc"
)

// indented returns the fields of a map from names to things without those that
// are one level too high: the field of a thing that stands beside it. It
// reports the first of each run of them.
func (r *reader) indented(n yamldoc.Node, where, noun string) []yamldoc.Field {
	specs := inputFields()
	if noun == "component" {
		specs = componentFields()
	}
	var out []yamldoc.Field
	owner, inRun := "", false
	for _, f := range n.Fields {
		if owner == "" || !hasField(specs, f.Key) || !misplaced(noun, f.Value) {
			out = append(out, f)
			owner, inRun = f.Key, false
			continue
		}
		r.partial[where+"."+owner] = true
		if !inRun {
			r.at(f.Place, "wrong-indentation",
				fmt.Sprintf("%s stands beside the %s %s, not in it", yamldoc.Quote(f.Key), noun, yamldoc.Quote(owner)),
				fmt.Sprintf("Is it indented too little? Indent line %d further, and what belongs to it.", f.Line))
		}
		inRun = true
	}
	return out
}

// misplaced reports whether a value that stands under the name of a field
// cannot be an input or a component of that name.
func misplaced(noun string, value yamldoc.Node) bool {
	if noun != "component" {
		return value.Shape == yamldoc.Scalar && value.Value != nil // an input with no field is a null
	}
	return value.Shape != yamldoc.Map || !slices.ContainsFunc(value.Fields, func(f yamldoc.Field) bool { return f.Key == "type" || f.Key == "source" })
}

func hasField(specs []fieldSpec, name string) bool {
	return slices.ContainsFunc(specs, func(s fieldSpec) bool { return s.name == name })
}

// indentHint asks whether a field that the map at where does not have belongs
// one level deeper. before holds the fields above it. It returns "" where
// nothing speaks for that.
func (r *reader) indentHint(where string, f yamldoc.Field, before map[string]yamldoc.Node) string {
	_, components := before["components"]
	vars, hasVars := before["vars"]
	switch {
	case where == "" && components && hasField(componentFields(), f.Key):
		return fmt.Sprintf("%s is a field of a component. Is line %d indented too little?", yamldoc.Quote(f.Key), f.Line)
	case where != "" && hasVars && vars.IsNull() && f.Line > vars.Line:
		return fmt.Sprintf("vars, in line %d, is empty. Is line %d indented too little?", vars.Line, f.Line)
	}
	return ""
}
