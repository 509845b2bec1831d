package diagnosis_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	pages "github.com/fairlead/fairlead/tools/page"
)

// TestTroubleshootingHasEverySituation compares the table of
// docs/operations/troubleshooting.md with testdata/situations.txt. The table has a row for
// each kind of situation. The row has the first message of this kind in the file, and the
// actions of this message.
func TestTroubleshootingHasEverySituation(t *testing.T) {
	text, err := os.ReadFile("testdata/situations.txt")
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`^\[([a-z-]+)[^]]*\] (.*)$`)
	code := regexp.MustCompile("^  > (`[^`]+`.*)$")
	messages, actions := map[string]string{}, map[string][]string{}
	kind := "" // the kind of the latest message, or "" if the file has an earlier message of this kind
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if m := head.FindStringSubmatch(line); m != nil {
			kind = m[1]
			if messages[kind] != "" {
				kind = ""
				continue
			}
			messages[kind] = m[2]
		} else if m := code.FindStringSubmatch(line); m != nil && kind != "" {
			actions[kind] = append(actions[kind], m[1])
		}
	}
	if len(messages) < 15 {
		t.Fatalf("situations.txt has %d kinds of situations only", len(messages))
	}
	var table strings.Builder
	table.WriteString("| situation | message | next |\n|---|---|---|\n")
	for _, kind := range slices.Sorted(maps.Keys(messages)) {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", kind, strings.ReplaceAll(messages[kind], "|", `\|`), strings.Join(actions[kind], "; "))
	}
	pages.Hold(t, "docs/operations/troubleshooting.md", "situations", table.String())
}
