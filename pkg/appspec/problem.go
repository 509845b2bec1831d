package appspec

import (
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Problem is one thing that is wrong with an app's configuration. File is
// slash-separated, inside the app's folder.
type Problem = yamlnode.Problem

// Problems is all that is wrong, in the order of the file. It is an error as
// soon as it is not empty; use Err, because a nil Problems in an error
// variable is not a nil error.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string { return yamlnode.Lines(ps) }

// Err returns nil if there is no problem, else a *fairlead.Error of KindInvalid
// with the code "invalid-app" that wraps the problems.
func (ps Problems) Err() error {
	return yamlnode.Invalid(ps, fairlead.CodeInvalidApp, "the app's configuration", "{app.validate} shows each with its file and line.")
}
