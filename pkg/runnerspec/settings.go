package runnerspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// settingsHint explains how to write a setting.
const settingsHint = "Write the path of a field and its value, such as runner_configuration.job.cpu=2."

// settings applies single fields from a command line to the content of a file. Each setting is the path of a field, "="
// and a value in YAML on one line; a value that is not YAML is a text. Settings are merged in order, as in Update. A
// problem of a setting is reported at the setting.
func (c *checker) settings(root yamlnode.Node, settings []string) yamlnode.Node {
	for i, s := range settings {
		path, value, ok := strings.Cut(s, "=")
		// A negative line, which no file has, identifies the setting.
		place := yamlnode.Place{Line: -1 - i}
		c.flags = append(c.flags, path)
		names := strings.Split(path, ".")
		if !ok || slices.Contains(names, "") || len(names) > yamlnode.MaxDepth {
			c.At(place, "invalid-setting", "the setting must be a path and a value", settingsHint)
			continue
		}
		n := settingValue(value).Moved(place)
		for _, name := range slices.Backward(names) {
			n = yamlnode.Node{Place: place, Shape: yamlnode.Map, Fields: []yamlnode.Field{{Place: place, Key: name, Value: n}}}
		}
		root = overlaid(root, n)
	}
	return root
}

func settingValue(value string) yamlnode.Node {
	text := yamlnode.Node{Shape: yamlnode.Scalar, Value: value}
	if value == "" {
		return text
	}
	n, problems := yamlnode.Read([]byte(value))
	flow := strings.ContainsAny(value[:1], "[{")
	if len(problems) > 0 || n.Shape != yamlnode.Scalar && !flow {
		return text
	}
	return n
}

// overlaid merges like merge, but it keeps nulls. In a file, a null means that the field is not given. In an update, a
// null removes the field. Only the caller knows whether it reads a file or an update.
func overlaid(base, top yamlnode.Node) yamlnode.Node {
	if base.Shape != yamlnode.Map || top.Shape != yamlnode.Map {
		return top
	}
	out := base
	out.Fields = slices.Clone(base.Fields)
	for _, f := range top.Fields {
		i := slices.IndexFunc(out.Fields, func(g yamlnode.Field) bool { return g.Key == f.Key })
		if i < 0 {
			out.Fields = append(out.Fields, f)
			continue
		}
		f.Value = overlaid(out.Fields[i].Value, f.Value)
		out.Fields[i] = f
	}
	return out
}

// sources replaces the negative lines of problems by the names of their settings.
func (c *checker) sources(ps []Problem) {
	for i := range ps {
		if p := &ps[i]; p.Line < 0 {
			p.File, p.Line, p.Column = fmt.Sprintf("--set %s", yamlnode.Printable(c.flags[-1-p.Line])), 1, 1
		}
	}
}
