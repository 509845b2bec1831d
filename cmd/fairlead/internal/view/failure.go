package view

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Failure explains why a command has no result. It is a problem of the API; the
// status is 0 if the problem does not come from a server.
type Failure struct {
	wire.Problem
	// NoError is set if nothing failed: the command waits for a person, or stopped
	// because a person asked for it.
	NoError bool
}

// Fail prints the failure, the error of each field, and the next step, in this order.
func (h human) Fail(f Failure) {
	s := h.errStyle
	what := f.Detail
	if what == "" {
		what = f.Title
	}
	var b strings.Builder
	label := s.Bad("Error:")
	if f.NoError {
		label = s.Warn(Cell(f.Title) + ":")
	}
	fmt.Fprintf(&b, "%s %s\n", label, sentence(Clean(what)))
	for _, e := range f.Errors {
		if e.Location == "" {
			fmt.Fprintf(&b, "  %s\n", Clean(e.Message))
		} else {
			fmt.Fprintf(&b, "  %s: %s\n", Clean(e.Location), Clean(e.Message))
		}
	}
	if f.Hint != "" {
		fmt.Fprintf(&b, "%s\n", Clean(f.Hint))
	}
	if f.Status >= 500 && f.RequestID != "" {
		fmt.Fprintf(&b, "%s\n", s.Dim("The server's log has details of request "+Cell(f.RequestID)+"."))
	}
	fmt.Fprint(h.err, b.String()) // an error of the standard error cannot be reported
}

// Fail prints the problem document on one line.
func (j jsonPrinter) Fail(f Failure) {
	data, err := encode(f.Problem, "")
	if err != nil {
		data = []byte(err.Error() + "\n")
	}
	j.err.Write(data) // an error of the standard error cannot be reported
}

// sentence adds a full stop to a message without final punctuation.
func sentence(s string) string {
	s = strings.TrimRight(s, " \n")
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".!?:") {
		return s
	}
	return s + "."
}
