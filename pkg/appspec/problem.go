package appspec

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamldoc"
)

// Problem is one thing that is wrong with an app's configuration. File is
// slash-separated, inside the app's folder.
type Problem = yamldoc.Problem

// Problems is all that is wrong, in the order of the file. It is an error as
// soon as it is not empty; use Err, because a nil Problems in an error
// variable is not a nil error.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns nil if there is no problem, else a *fairlead.Error of KindInvalid
// with the code "invalid-app" that wraps the problems.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	message := "the app's configuration has a problem"
	if len(ps) > 1 {
		message = fmt.Sprintf("the app's configuration has %d problems", len(ps))
	}
	return &fairlead.Error{
		Kind: fairlead.KindInvalid, Code: "invalid-app", Message: message,
		Hint: "`fairlead app validate` shows each with its file and line.", Err: ps,
	}
}
