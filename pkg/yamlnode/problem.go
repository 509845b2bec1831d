// Package yamlnode reads a configuration written by people: YAML or JSON into
// nodes that know where they stand, and what is wrong with them into problems
// with file, line and the nearest name that is known. It knows no
// configuration in particular.
package yamlnode

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Limits of what is read.
const (
	MaxDepth    = 20  // nesting of lists and maps in a value
	MaxProblems = 100 // problems that are reported at once
)

// Problem is one thing that is wrong with a configuration. Text of the
// configuration is quoted in it with control characters escaped, so that it
// is safe to print on a terminal.
type Problem struct {
	File    string `json:"file"`           // as the caller calls it
	Line    int    `json:"line"`           // from 1
	Column  int    `json:"column"`         // from 1, in characters
	Code    string `json:"code"`           // stable, kebab-case
	Message string `json:"message"`        // one sentence without a final stop
	Hint    string `json:"hint,omitempty"` // what to do, in full sentences; may be empty; an example in it has lines of its own
}

// String returns the problem as compilers print it, on one line.
func (p Problem) String() string {
	s := fmt.Sprintf("%s:%d:%d: %s [%s]", p.File, p.Line, p.Column, p.Message, p.Code)
	if p.Hint != "" {
		s += ". " + strings.ReplaceAll(p.Hint, "\n", " ")
	}
	return s
}

// Lines returns the problems as compilers print them, one on each line.
func Lines(ps []Problem) string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Invalid returns nil if there is no problem, else a *fairlead.Error of
// KindInvalid that wraps the problems. whole is what they are of, such as "the
// app's configuration".
func Invalid[P interface {
	~[]Problem
	error
}](ps P, code fairlead.Code, whole, hint string) error {
	if len(ps) == 0 {
		return nil
	}
	message := whole + " has a problem"
	if len(ps) > 1 {
		message = fmt.Sprintf("%s has %d problems", whole, len(ps))
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: code, Message: message, Hint: hint, Err: ps}
}

// HasCode reports whether one of the problems has the code.
func HasCode(ps []Problem, code string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Code == code })
}

// Finish sorts problems by place, removes repetitions and cuts the list at
// MaxProblems.
func Finish(ps []Problem) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	ps = slices.Compact(ps)
	if len(ps) > MaxProblems {
		rest := len(ps) - MaxProblems
		last := ps[MaxProblems-1]
		ps = append(ps[:MaxProblems:MaxProblems], Problem{
			File: last.File, Line: last.Line, Column: last.Column, Code: "too-many-problems",
			Message: fmt.Sprintf("%d more problems are not shown", rest),
		})
	}
	return ps
}

// Quote returns text of a configuration for use in a message: quoted,
// control characters and characters that change the direction of writing
// escaped, cut after 60 characters.
func Quote(s string) string { return strconv.Quote(shorten(s, 60)) }

// Printable is Quote without the quotes, for longer text: it replaces what a
// terminal could take for a command.
func Printable(s string) string {
	q := strconv.Quote(shorten(s, 200))
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// shorten cuts s after limit characters.
func shorten(s string, limit int) string {
	for i := range s {
		if limit--; limit < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// Nearest returns the known name that got most probably means, or "". A name
// is near if no more than a third of it, and at least one letter, would have
// to change.
func Nearest(got string, known []string) string {
	if len(got) > 2*fairlead.MaxName {
		return ""
	}
	best, bestDistance := "", 0
	for _, name := range slices.Sorted(slices.Values(known)) {
		d := distance(strings.ToLower(got), strings.ToLower(name))
		if d <= max(1, max(len(got), len(name))/3) && (best == "" || d < bestDistance) {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is the edit distance, in which two letters that changed places
// count once.
func distance(a, b string) int {
	d := levenshtein.Distance(a, b, nil)
	if d == 2 && slices.Equal(slices.Sorted(slices.Values([]byte(a))), slices.Sorted(slices.Values([]byte(b)))) {
		return 1
	}
	return d
}

// DidYouMean returns a hint that names the nearest of the known names, or all
// of them where none is near and they are few.
func DidYouMean(got, noun string, known []string) string {
	if name := Nearest(got, known); name != "" {
		return fmt.Sprintf("Did you mean %q?", name)
	}
	switch {
	case len(known) == 0:
		return fmt.Sprintf("There are no %s.", noun)
	case len(known) <= 12:
		return fmt.Sprintf("The %s are: %s.", noun, strings.Join(slices.Sorted(slices.Values(known)), ", "))
	}
	return ""
}
