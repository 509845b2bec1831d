package agentstatus

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A page is written by hand. The two libraries for it that are well kept cost
// each start of the program 1.7 ms and 2.5 ms of processor time, a fifth and
// more of what a step takes that does nothing, and the steps, of which there
// are many, are the same program. The tests read a page by Prometheus' own
// parser.

// family describes one metric. Its name begins with the namespace.
type family struct{ name, kind, help string }

const (
	counterKind = "counter"
	gaugeKind   = "gauge"
)

// page is a page of metrics in Prometheus' text format, version 0.0.4.
type page struct{ b bytes.Buffer }

// write writes all of a family: values by labels, as labelled makes them.
func (p *page) write(f family, values map[string]float64) {
	name := f.name
	p.b.WriteString("# HELP " + name + " " + f.help + "\n# TYPE " + name + " " + f.kind + "\n")
	for _, labels := range slices.Sorted(maps.Keys(values)) {
		p.b.WriteString(name + labels + " " + strconv.FormatFloat(values[labels], 'g', -1, 64) + "\n")
	}
}

// one is the only value of a family without labels.
func one(v float64) map[string]float64 { return map[string]float64{"": v} }

// labelled writes labels, which are pairs.
func labelled(labels ...string) string {
	if len(labels) == 0 {
		return ""
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	var b strings.Builder
	for i := 0; i < len(labels); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(labels[i] + `="` + escape.Replace(labels[i+1]) + `"`)
	}
	return b.String() + "}"
}

// counters are values that only rise, by the name of their family and labels.
// Safe for concurrent use.
type counters struct {
	mu sync.Mutex
	of map[string]map[string]float64
}

func (c *counters) add(name string, n int64, labels ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[name] == nil {
		c.of[name] = map[string]float64{}
	}
	c.of[name][labelled(labels...)] += float64(max(0, n))
}

func (c *counters) get(name string) map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of[name])
}
