package agentstatus

import (
	"fmt"
	"strings"
	"testing"

	docpage "github.com/fairlead/fairlead/tools/page"
)

// docs/reference/metrics.md lists each metric with its help text.
func TestPageListsEveryMetric(t *testing.T) {
	_, s := newWorld()
	var table strings.Builder
	table.WriteString("| metric | type | |\n|---|---|---|\n")
	help := ""
	for line := range strings.Lines(string(s.Metrics())) {
		if text, ok := strings.CutPrefix(line, "# HELP "); ok {
			_, help, _ = strings.Cut(strings.TrimSpace(text), " ")
		} else if text, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(text), " ")
			fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, kind, help)
		}
	}
	docpage.Hold(t, "docs/reference/metrics.md", "metrics", table.String())
}
