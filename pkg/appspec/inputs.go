package appspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// InputProblem is one problem of the values given for an app's inputs, or for an action's params. It never holds a value.
type InputProblem struct {
	Input   string `json:"input"`
	Code    string `json:"code"` // "unknown-input", "missing-input" or "wrong-type"; "unknown-param" or "missing-param"
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
// null counts as not given. A value is sensitive if its input is sensitive, or if it is encrypted. A given Withheld is checked by its type and
// stays withheld.
//
// The error is a *fairlead.Error of KindInvalid with the code "invalid-inputs" that wraps InputProblems. It reports
// unknown names, required inputs without a value and values of the wrong type, all at once, and never a value.
func (a *App) CheckInputs(given map[string]any) (map[string]Resolved, error) {
	return checkValues("input", fairlead.CodeInvalidInputs, a.Inputs, given)
}

// CheckParams returns the value of every param of the action, as App.CheckInputs does for inputs. Its error has the
// code "invalid-params".
func (a Action) CheckParams(given map[string]any) (map[string]Resolved, error) {
	return checkValues("param", fairlead.CodeInvalidParams, a.Params, given)
}

// checkValues is CheckInputs for the given declarations. noun is what they are, for messages and codes.
func checkValues(noun string, code fairlead.Code, declared []Input, given map[string]any) (map[string]Resolved, error) {
	var problems InputProblems
	values := make(map[string]Resolved, len(declared))
	names := make([]string, len(declared))
	for i, in := range declared {
		names[i] = in.Name
		if w, ok := given[in.Name].(Withheld); ok {
			if in.Type.accepts(w.Type) {
				values[in.Name] = Resolved{Value: w, Sensitive: in.Sensitive || w.Encrypted != ""}
			} else {
				problems = append(problems, InputProblem{Input: in.Name, Code: "wrong-type", Message: fmt.Sprintf("%s %q wants a %s, got a %s", noun, in.Name, in.Type, w.Type)})
			}
			continue
		}
		value, err := yamlnode.Normalize(given[in.Name])
		if err == nil && value != nil {
			err = in.Type.Check(value)
		}
		switch {
		case err != nil:
			problems = append(problems, InputProblem{
				Input: in.Name, Code: "wrong-type", Message: fmt.Sprintf("%s %q %v", noun, in.Name, err),
			})
			continue
		case value == nil && in.HasDefault:
			if value, err = yamlnode.Normalize(in.Default); err != nil {
				return nil, fairlead.Invalid(fairlead.CodeInvalidDefault, "the default of %s %q: %v", noun, in.Name, err)
			}
		case value == nil && in.Required:
			problems = append(problems, InputProblem{
				Input: in.Name, Code: "missing-" + noun, Message: fmt.Sprintf("%s %q is required%s", noun, in.Name, givenBy(in)), Hint: in.Description,
			})
			continue
		}
		values[in.Name] = Resolved{Value: value, Sensitive: in.Sensitive}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			problems = append(problems, InputProblem{
				Input: name, Code: "unknown-" + noun, Message: fmt.Sprintf("there is no %s %s", noun, yamlnode.Quote(name)),
				Hint: yamlnode.DidYouMean(name, noun+"s", names),
			})
		}
	}
	if len(problems) == 0 {
		return values, nil
	}
	slices.SortStableFunc(problems, func(a, b InputProblem) int { return strings.Compare(a.Input, b.Input) })
	message := "an input is wrong"
	switch {
	case len(problems) > 1:
		message = fmt.Sprintf("%d %ss are wrong", len(problems), noun)
	case noun != "input":
		message = "a " + noun + " is wrong"
	}
	return nil, &fairlead.Error{Kind: fairlead.KindInvalid, Code: code, Message: message, Err: problems}
}
