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

// variables reads NAME=value lines, as `docker run --env-file` does: empty
// lines and those that begin with # say nothing. An "export" and quotes around
// a value, as shells and systemd have them, are taken off.
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
			im.problem(at, "invalid-line", "the line is no NAME=value", "Comments begin with #.")
			continue
		case first[name] != 0:
			im.problem(at, "repeated-variable", fmt.Sprintf("%s is given twice, first in line %d", yamlnode.Printable(name), first[name]), "Remove one of the two.")
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

// arguments returns the names of -name=value, --name value and so on.
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
