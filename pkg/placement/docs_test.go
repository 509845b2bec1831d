package placement_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
)

// world parses an example of docs/vendor/placement.md.
func world(t *testing.T, text string) (i placement.Install, rules []placement.Rule, runners []placement.Runner) {
	t.Helper()
	for line := range strings.Lines(text) {
		parts := strings.Fields(line)
		switch parts[0] {
		case "runner":
			r := shared(parts[1])
			// Runners are listed from the oldest.
			r.ID = fairlead.RunnerID("run_" + string(rune('a'+len(runners))))
			switch parts[2] {
			case "own":
				r.Org, r.Scope, r.Install = "acme", placement.Own, fairlead.InstallID(parts[3])
			case "group":
				path, err := placement.ParsePath(parts[3])
				if err != nil {
					t.Fatal(err)
				}
				r.Org, r.Scope, r.Group = "acme", placement.Group, path
			}
			if last := parts[len(parts)-1]; last == "disabled" || last == "draining" {
				r.Mode = fairlead.RunnerMode(last)
			}
			runners = append(runners, r)
		case "rule":
			r := rule(parts[1], "", placement.Match{})
			labels := map[string]string{}
			for _, part := range parts[2 : len(parts)-2] {
				switch key, value, _ := strings.Cut(part, "="); key {
				case "group":
					r.Match.Group = value
				case "app":
					r.Match.App = value
				default:
					labels[key] = value
				}
			}
			r.Match.Labels = placement.LabelsOf(labels)
			for _, runner := range runners {
				if runner.Name == parts[len(parts)-1] {
					r.Runner = runner.ID
					if err := placement.CheckRule(r, runner); err != nil {
						t.Fatalf("%q: %v", line, err)
					}
				}
			}
			rules = append(rules, r)
		case "install":
			labels := map[string]string{}
			for _, part := range parts[6:] {
				key, value, _ := strings.Cut(part, "=")
				labels[key] = value
			}
			i = placement.Install{
				ID: fairlead.InstallID(parts[1]), Name: parts[1], Org: "acme",
				Group: placement.Path(parts[3]), App: parts[5], Labels: placement.LabelsOf(labels),
			}
		default:
			t.Fatalf("unknown line in an example: %q", line)
		}
	}
	return i, rules, runners
}

func TestDocumentedExamplesAreCorrect(t *testing.T) {
	text, err := os.ReadFile("../../docs/vendor/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```placement\n(.*?)```\n\n```\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) != strings.Count(string(text), "```placement") || len(examples) < 5 {
		t.Fatalf("only %d examples have a result, or there are fewer than 5", len(examples))
	}
	for _, e := range examples {
		i, rules, runners := world(t, e[1])
		if got := shown(placement.Explain(i, rules, runners)); got != e[2] {
			t.Errorf("the example\n%s\nresults in\n%s\nwant\n%s", e[1], got, e[2])
		}
	}
}
