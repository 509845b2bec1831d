package importer

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// variable is one line of an environment file.
type variable struct {
	yamlnode.Place
	name, value string
}

// variables reads NAME=value lines in the format of `docker run --env-file`. It skips
// empty lines and lines that begin with #. It removes "export" and the quotes around a
// value, which files of shells and systemd have.
func (im *importer) variables(src []byte) []variable {
	if len(src) > runnerspec.MaxFileSize {
		im.problem(yamlnode.Place{Line: 1, Column: 1}, "file-too-large", fmt.Sprintf("the file is larger than %d bytes", runnerspec.MaxFileSize), "")
		return nil
	}
	var out []variable
	first := map[string]int{}
	line := 0
	for raw := range bytes.SplitSeq(src, []byte("\n")) {
		line++
		at := yamlnode.Place{Line: line, Column: 1}
		s := strings.TrimSpace(string(raw))
		if s == "" || strings.HasPrefix(s, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(s, "export "), "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok || name == "" || strings.ContainsAny(name, " \t\"'"):
			im.problem(at, "invalid-line", "the line is not of the form NAME=value", "Comments begin with #.")
			continue
		case first[name] != 0:
			im.problem(at, "repeated-variable", fmt.Sprintf("%s is set twice, first in line %d", yamlnode.Printable(name), first[name]), "Remove one of the two.")
			continue
		}
		first[name] = line
		out = append(out, variable{Place: at, name: name, value: unquoted(strings.TrimSpace(value))})
	}
	return out
}

func unquoted(s string) string {
	for _, q := range []string{`"`, `'`} {
		if len(s) > 1 && strings.HasPrefix(s, q) && strings.HasSuffix(s, q) {
			return s[1 : len(s)-1]
		}
	}
	return s
}

// arguments returns the names of the arguments in s, which have the form -name=value,
// --name=value, -name value or --name value. It returns false if s has another form.
func arguments(s string) (names []string, ok bool) {
	given := strings.Fields(s)
	for i := 0; i < len(given); i++ {
		name, _, whole := strings.Cut(strings.TrimLeft(given[i], "-"), "=")
		if !strings.HasPrefix(given[i], "-") || name == "" {
			return names, false
		}
		if !whole {
			if i++; i == len(given) {
				return names, false
			}
		}
		names = append(names, name)
	}
	return names, true
}
