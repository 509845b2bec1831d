package yamlnode

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// IsControl reports whether r is a control character that a configuration must not
// hold: one of C0 or C1, or DEL. Line feeds and tabs are permitted, because a text may
// have several lines.
func IsControl(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// ControlCharacters returns a problem for each text or key with a control character,
// at the place of the text. It finds control characters that are written as escapes.
// Read refuses control characters that are in the file itself. The problems quote no
// text, and their File is empty.
func ControlCharacters(n Node) []Problem {
	var problems []Problem
	check := func(p Place, what, text string) {
		i := strings.IndexFunc(text, IsControl)
		if i < 0 {
			return
		}
		r := []rune(text[i:])[0]
		problems = append(problems, Problem{File: p.File, Line: p.Line, Column: p.Column, Code: "control-character",
			Message: fmt.Sprintf("the %s holds the control character U+%04X", what, r), Hint: "Remove it."})
	}
	if text, ok := n.Value.(string); ok {
		check(n.Place, "text", text)
	}
	for _, item := range n.Items {
		problems = append(problems, ControlCharacters(item)...)
	}
	for _, f := range n.Fields {
		check(f.Place, "key", f.Key)
		problems = append(problems, ControlCharacters(f.Value)...)
	}
	return problems
}

// Unreported returns those problems of the list more whose place has no problem in the
// list problems, so that each place is reported once.
func Unreported(more, problems []Problem) []Problem {
	return slices.DeleteFunc(more, func(p Problem) bool {
		return slices.ContainsFunc(problems, func(q Problem) bool { return p.File == q.File && p.Line == q.Line && p.Column == q.Column })
	})
}
