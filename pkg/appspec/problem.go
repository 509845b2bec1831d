package appspec

import (
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Problem is one problem of an app's configuration. File is slash-separated and relative to the app's folder.
type Problem = yamlnode.Problem

// Problems holds all problems, in the order of the file. Use Err to get an error: a nil Problems in an error variable
// is not a nil error.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string { return yamlnode.Lines(ps) }

// Err returns nil if there is no problem, else a *fairlead.Error of KindInvalid
// with the code "invalid-app" that wraps the problems.
func (ps Problems) Err() error {
	return yamlnode.Invalid(ps, fairlead.CodeInvalidApp, "the app's configuration", "{app.validate} shows each with its file and line.")
}
