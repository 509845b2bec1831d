package appspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// InputProblem is one problem of the values given for an app's inputs. It never holds a value.
type InputProblem struct {
	Input   string `json:"input"`
	Code    string `json:"code"` // "unknown-input", "missing-input" or "wrong-type"
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// InputProblems holds all problems of the given values, sorted by input.
type InputProblems []InputProblem

// Error returns one line for each problem.
func (ps InputProblems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = strings.TrimSpace(p.Message + ". " + p.Hint)
	}
	return strings.Join(lines, "\n")
}

// CheckInputs returns the value of every declared input: the given JSON value, else the default, else null. A given
// null counts as not given. A value is sensitive if its input is sensitive.
//
// The error is a *fairlead.Error of KindInvalid with the code "invalid-inputs" that wraps InputProblems. It reports
// unknown names, required inputs without a value and values of the wrong type, all at once, and never a value.
func (a *App) CheckInputs(given map[string]any) (map[string]Resolved, error) {
	var problems InputProblems
	values := make(map[string]Resolved, len(a.Inputs))
	names := make([]string, len(a.Inputs))
	for i, in := range a.Inputs {
		names[i] = in.Name
		value, err := yamlnode.Normalize(given[in.Name])
		if err == nil && value != nil {
			err = in.Type.Check(value)
		}
		switch {
		case err != nil:
			problems = append(problems, InputProblem{
				Input: in.Name, Code: "wrong-type", Message: fmt.Sprintf("input %q %v", in.Name, err),
			})
			continue
		case value == nil && in.HasDefault:
			if value, err = yamlnode.Normalize(in.Default); err != nil {
				return nil, fairlead.Invalid(fairlead.CodeInvalidDefault, "the default of input %q: %v", in.Name, err)
			}
		case value == nil && in.Required:
			problems = append(problems, InputProblem{
				Input: in.Name, Code: "missing-input", Message: fmt.Sprintf("input %q is required%s", in.Name, givenBy(in)), Hint: in.Description,
			})
			continue
		}
		values[in.Name] = Resolved{Value: value, Sensitive: in.Sensitive}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			problems = append(problems, InputProblem{
				Input: name, Code: "unknown-input", Message: fmt.Sprintf("there is no input %s", yamlnode.Quote(name)),
				Hint: yamlnode.DidYouMean(name, "inputs", names),
			})
		}
	}
	if len(problems) == 0 {
		return values, nil
	}
	slices.SortStableFunc(problems, func(a, b InputProblem) int { return strings.Compare(a.Input, b.Input) })
	message := "an input is wrong"
	if len(problems) > 1 {
		message = fmt.Sprintf("%d inputs are wrong", len(problems))
	}
	return nil, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidInputs, Message: message, Err: problems}
}
