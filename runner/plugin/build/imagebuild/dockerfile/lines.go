package dockerfile

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// instruction is one instruction of a Dockerfile, without comments and heredocs.
type instruction struct {
	line  int    // its first line, from 1
	name  string // in upper case
	flags []flag
	args  []string // parts, with their quotes
}

// flag is a flag of an instruction, such as --from=base.
type flag struct{ name, value string }

var (
	directivePattern = pattern.New(`^#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*$`)
	heredocPattern   = pattern.New(`(?:^|\s)\d*<<(-?)(?:"([^"<\s]+)"|'([^'<\s]+)'|([^"'<\s]+))`)
)

// source is a Dockerfile, line by line.
type source struct {
	lines  []string
	escape byte // continues a line at its end
}

func newSource(text string) source {
	text = strings.TrimPrefix(text, "\ufeff")
	s := source{lines: strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), escape: '\\'}
	for _, line := range s.lines {
		m := directivePattern.FindStringSubmatch(line)
		if m == nil {
			break // directives are at the top only
		}
		if strings.EqualFold(m[1], "escape") && m[2] == "`" {
			s.escape = '`'
		}
	}
	return s
}

// instructions returns the instructions in their order.
func (s source) instructions() (all []instruction) {
	for at := 0; at < len(s.lines); {
		first := at
		text, next := s.joined(at)
		at = next
		if strings.TrimSpace(text) == "" {
			continue
		}
		in := parse(text)
		in.line = first + 1
		if name := in.name; name == "RUN" || name == "COPY" || name == "ADD" || name == "ONBUILD" {
			at = s.afterHeredocs(text, at)
		}
		all = append(all, in)
	}
	return all
}

// joined returns the instruction that begins in the line, with its continuations, and the number of the line after it. It
// omits comments and empty lines, also those between continuations.
func (s source) joined(at int) (text string, next int) {
	for continued := false; at < len(s.lines); at++ {
		line := strings.TrimLeft(s.lines[at], " \t")
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			if continued {
				continue
			}
			return "", at + 1
		}
		more := strings.TrimRight(line, " \t")
		rest, ends := strings.CutSuffix(more, string(s.escape))
		if !ends || strings.HasSuffix(rest, string(s.escape)) {
			return text + line, at + 1
		}
		text, continued = text+rest, true
	}
	return text, at
}

// afterHeredocs returns the number of the line after the heredocs that the instruction begins. A heredoc without an end is
// none: the text is in quotes.
func (s source) afterHeredocs(text string, at int) int {
	for _, m := range heredocPattern.FindAllStringSubmatch(text, -1) {
		end := m[2] + m[3] + m[4]
		for i := at; i < len(s.lines); i++ {
			line := s.lines[i]
			if m[1] == "-" {
				line = strings.TrimLeft(line, "\t")
			}
			if line == end {
				at = i + 1
				break
			}
		}
	}
	return at
}

// parse splits an instruction into its name, its flags and its parts.
func parse(text string) instruction {
	all := split(text)
	in := instruction{name: strings.ToUpper(all[0])}
	rest := all[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "--") {
		name, value, _ := strings.Cut(strings.TrimPrefix(rest[0], "--"), "=")
		in.flags, rest = append(in.flags, flag{name, value}), rest[1:]
	}
	in.args = rest
	return in
}

// split splits a text at spaces outside of quotes.
func split(text string) (all []string) {
	var part strings.Builder
	var quote rune
	for _, r := range text {
		switch {
		case quote == 0 && (r == ' ' || r == '\t'):
			if part.Len() > 0 {
				all = append(all, part.String())
			}
			part.Reset()
			continue
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case r == quote:
			quote = 0
		}
		part.WriteRune(r)
	}
	if part.Len() > 0 {
		all = append(all, part.String())
	}
	return all
}

// flag returns the values of the flag.
func (in instruction) flag(name string) (values []string) {
	for _, f := range in.flags {
		if f.name == name {
			values = append(values, f.value)
		}
	}
	return values
}
