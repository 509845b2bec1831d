package main_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPagesAreTold: each command of a page is one of the story that is told of
// it, and the files that the page shows are those that the story uses.
func TestPagesAreTold(t *testing.T) {
	for _, of := range []struct {
		page, story string
		commands    int // at least
		files       []string
	}{
		{"RUNNERS.md", "runners.txtar", 30, []string{"my-gke-runner.yaml"}},
		{"IDENTITY.md", "identity.txtar", 16, []string{"eks.yaml", "", "github.yaml"}},
	} {
		page, err := os.ReadFile("../../docs/" + of.page)
		if err != nil {
			t.Fatal(err)
		}
		story, err := os.ReadFile("testdata/script/" + of.story)
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^(?:exec|exits \d+) (fairlead .*?)(?: &\w*&)?$`).FindAllStringSubmatch(string(story), -1) {
			told[m[1]] = true
		}
		commands := regexp.MustCompile(`(?m)^\$ (.+)$`).FindAllStringSubmatch(string(page), -1)
		if len(commands) < of.commands {
			t.Errorf("docs/%s has %d commands only", of.page, len(commands))
		}
		for _, m := range commands {
			if !told[m[1]] {
				t.Errorf("docs/%s has `%s`, which no story tells", of.page, m[1])
			}
		}
		rest := string(page)
		for _, name := range of.files {
			var example string
			_, rest, _ = strings.Cut(rest, "```yaml\n")
			example, rest, _ = strings.Cut(rest, "```")
			example = strings.TrimPrefix(example, "# "+name+"\n")
			if name != "" && (example == "" || !strings.Contains(string(story), "-- "+name+" --\n"+example+"-- ")) {
				t.Errorf("the file %s that docs/%s shows is not the one of the story", name, of.page)
			}
		}
	}
}
