package runnerspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// settingsHint says how a setting is written.
const settingsHint = "Write the path of a field and its value, such as runner_configuration.job.cpu=2."

// settings puts single fields, as a command line gives them, on top of what a
// file says: each is the path of a field, "=" and a value, YAML on one line. A
// value that is no YAML is a text. They are merged as in Update, in their
// order. What is wrong with one is reported at its own place.
func (c *checker) settings(root yamlnode.Node, settings []string) yamlnode.Node {
	for i, s := range settings {
		path, value, ok := strings.Cut(s, "=")
		// A line that no file has says which setting it is.
		place := yamlnode.Place{Line: -1 - i}
		c.flags = append(c.flags, path)
		names := strings.Split(path, ".")
		if !ok || slices.Contains(names, "") || len(names) > yamlnode.MaxDepth {
			c.At(place, "invalid-setting", "the setting is no path and value", settingsHint)
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

// overlaid is merge that keeps nulls: of a file they mean that a field is not
// given, of an update that it is to be removed, and which it is shows later.
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

// sources gives the problems of settings their places.
func (c *checker) sources(ps []Problem) {
	for i := range ps {
		if p := &ps[i]; p.Line < 0 {
			p.File, p.Line, p.Column = fmt.Sprintf("--set %s", yamlnode.Printable(c.flags[-1-p.Line])), 1, 1
		}
	}
}
