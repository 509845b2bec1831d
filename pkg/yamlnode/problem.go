// Package yamlnode reads configurations that people write. It converts YAML or JSON
// into nodes with their places in the file. It reports problems with file, line and a
// suggestion, such as the most similar known name. It is independent of any single
// configuration format.
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

// The limits of a configuration.
const (
	MaxDepth    = 20  // nesting of lists and maps in a value
	MaxProblems = 100 // problems that are reported at once
)

// Problem is one problem of a configuration. It is safe to print on a terminal: the
// control characters of quoted text are escaped.
type Problem struct {
	File    string `json:"file"`           // the caller's name of the file
	Line    int    `json:"line"`           // from 1
	Column  int    `json:"column"`         // from 1, in characters
	Code    string `json:"code"`           // stable, kebab-case
	Message string `json:"message"`        // one sentence without a final stop
	Hint    string `json:"hint,omitempty"` // what to do, in full sentences; may be empty; an example in it is on separate lines
}

// String returns the problem on one line, in the form of compilers:
// file:line:column: message [code]. hint
func (p Problem) String() string {
	s := fmt.Sprintf("%s:%d:%d: %s [%s]", p.File, p.Line, p.Column, p.Message, p.Code)
	if p.Hint != "" {
		s += ". " + strings.ReplaceAll(p.Hint, "\n", " ")
	}
	return s
}

// Lines returns the problems as String does, one on each line.
func Lines(ps []Problem) string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Invalid returns nil if ps is empty, otherwise a *fairlead.Error of KindInvalid that
// wraps ps. whole names what has the problems, such as "the app's configuration".
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

// HasCode reports whether any problem has the code.
func HasCode(ps []Problem, code string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Code == code })
}

// Finish sorts problems by place and removes repetitions. If there are more than
// MaxProblems, it keeps the first MaxProblems and adds a problem with the number of
// the other problems.
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

// Quote returns text of a configuration for use in a message: in quotes, with
// unprintable characters escaped, and cut after 60 characters. Unprintable characters
// are, for example, control characters and characters that change the direction of
// writing.
func Quote(s string) string { return strconv.Quote(shorten(s, 60)) }

// Printable is Quote without the quotes, and it cuts the text after 200 characters. It
// escapes characters that could control a terminal.
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

// Nearest returns the known name that is most similar to got, or "". A name is
// similar if its edit distance is at most a third of its length, or at most one.
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

// distance returns the edit distance of a and b. Two swapped letters count as one edit.
func distance(a, b string) int {
	d := levenshtein.Distance(a, b, nil)
	if d == 2 && slices.Equal(slices.Sorted(slices.Values([]byte(a))), slices.Sorted(slices.Values([]byte(b)))) {
		return 1
	}
	return d
}

// DidYouMean returns a hint with the most similar known name. If none is similar, it
// lists all known names, or returns "" if there are more than 12.
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
