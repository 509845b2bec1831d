package view

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Hint returns a hint in which each named action is replaced by its command line.
func Hint(text string, actions []wire.Action) string {
	known := make([]fairlead.Action, len(actions))
	for i, a := range actions {
		known[i] = action(a)
	}
	return commandline.Text(text, known)
}

// Advice returns the steps as one paragraph.
func Advice(next []wire.NextStep) string {
	var parts []string
	for _, n := range next {
		if n.Action == nil {
			parts = append(parts, Hint(n.Effect, nil))
		} else {
			parts = append(parts, "`"+Command(*n.Action)+"` "+n.Effect+".")
		}
	}
	return strings.Join(parts, " ")
}

// Command returns the command line of an action.
func Command(a wire.Action) string { return commandline.Of(action(a)) }

func action(a wire.Action) fairlead.Action {
	return fairlead.Action{Verb: fairlead.Verb(a.Verb), Args: fairlead.Args(a.Args)}
}
