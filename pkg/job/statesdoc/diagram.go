package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// diagram is a Mermaid state diagram. Edges between the same two states are
// drawn once, with all their labels.
type diagram struct {
	edges  [][2]string
	labels map[[2]string][]string
}

func newDiagram() *diagram { return &diagram{labels: map[[2]string][]string{}} }

func (d *diagram) edge(from, to, label string) {
	e := [2]string{from, to}
	if _, known := d.labels[e]; !known {
		d.edges = append(d.edges, e)
		d.labels[e] = nil
	}
	if label != "" && !slices.Contains(d.labels[e], label) {
		d.labels[e] = append(d.labels[e], label)
	}
}

func (d *diagram) write(b *bytes.Buffer) {
	// Mermaid's identifiers hold no hyphens.
	id := func(s string) string { return strings.ReplaceAll(s, "-", "_") }
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, e := range d.edges {
		fmt.Fprintf(b, "    %s --> %s", id(e[0]), id(e[1]))
		if labels := d.labels[e]; len(labels) > 0 {
			b.WriteString(": " + strings.Join(labels, ", "))
		}
		b.WriteString("\n")
	}
	b.WriteString("```\n")
}
