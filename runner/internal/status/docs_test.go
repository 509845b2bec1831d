package status

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/RUNNERS.md lists each metric, as the agent itself describes it.
// UPDATE_GOLDEN=1 writes it.
func TestThePageListsEveryMetric(t *testing.T) {
	const path, begin, end = "../../../docs/RUNNERS.md", "<!-- metrics: written by UPDATE_GOLDEN=1 go test ./runner/internal/status -->\n", "<!-- end -->"
	_, s := newWorld()
	var table strings.Builder
	table.WriteString("\n| metric | type | |\n|---|---|---|\n")
	help := ""
	for line := range strings.Lines(string(s.Metrics())) {
		if text, ok := strings.CutPrefix(line, "# HELP "); ok {
			_, help, _ = strings.Cut(strings.TrimSpace(text), " ")
		} else if text, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(text), " ")
			fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, kind, help)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	was, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatal("the page has no place for the metrics")
	}
	if was == table.String() {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") == "" {
		t.Fatal("docs/RUNNERS.md does not list the agent's metrics: UPDATE_GOLDEN=1 writes it")
	}
	if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
