package view

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Rendered is what a deployment of an install would give to its components.
type Rendered wire.Rendered

// JSON returns the wire.Rendered.
func (r Rendered) JSON() any { return wire.Rendered(r) }

// Human writes each component with its settings, one a line.
func (r Rendered) Human(p *Page) {
	p.Fields([2]string{"Install", r.Install}, [2]string{"App", r.App}, [2]string{"Version", versionField(r.Version, r.Names)})
	for _, c := range r.Components {
		p.Gap()
		note := ""
		if c.Off {
			note = " (off: an input switches it off, and a deployment does not have it)"
		}
		p.Line("%s%s", Styled(p.Style.Bold(Cell(c.Name))), note)
		rows := [][]string{
			{"  type", c.Type},
			{"  source", fmt.Sprintf("./%s (%s)", strings.TrimPrefix(c.Source, "."), short(c.Artifact))},
		}
		list := func(name string, items []string) {
			if len(items) > 0 {
				rows = append(rows, []string{"  " + name, strings.Join(items, ", ")})
			}
		}
		list("needs", c.DependsOn)
		if c.Image != nil {
			rows = append(rows, []string{"  image", renderedValue(*c.Image)})
		}
		rows = append(rows, rendered("options", c.Options)...)
		rows = append(rows, rendered("vars", c.Vars)...)
		list("secrets", c.Secrets)
		list("environment", c.Environment)
		p.Table([]string{"  FIELD", "VALUE"}, rows)
	}
}

// rendered returns a row for each value.
func rendered(field string, values map[string]wire.RenderedValue) (rows [][]string) {
	for _, name := range sortedKeys(values) {
		rows = append(rows, []string{"  " + field + "." + name, renderedValue(values[name])})
	}
	return rows
}

func renderedValue(v wire.RenderedValue) string {
	if v.Problem != "" {
		return "refused: " + v.Problem
	}
	return clipped(value(v.Value), "--json prints all")
}
