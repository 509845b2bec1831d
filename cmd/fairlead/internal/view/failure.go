package view

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Failure is why a command has no result: a problem as the API knows it, with
// status 0 when no server had a say in it.
type Failure struct {
	wire.Problem
	// NoError says that nothing went wrong: something waits for the person, or
	// did what they asked.
	NoError bool
}

// Fail prints what happened, then field by field what is wrong, then what to
// do next.
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
		fmt.Fprintf(&b, "%s\n", s.Dim("The server's log has more about request "+Cell(f.RequestID)+"."))
	}
	fmt.Fprint(h.err, b.String()) // nowhere left to report that this failed
}

// Fail prints the problem document on one line.
func (j jsonPrinter) Fail(f Failure) {
	data, err := encode(f.Problem, "")
	if err != nil {
		data = []byte(err.Error() + "\n")
	}
	j.err.Write(data) // nowhere left to report that this failed
}

// sentence ends a message with a stop, unless it ends a line of its own.
func sentence(s string) string {
	s = strings.TrimRight(s, " \n")
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".!?:") {
		return s
	}
	return s + "."
}
