package main_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRunnersPageIsTold: each command of docs/RUNNERS.md is one of the story
// that is told of runners, and the file that the page shows is the one that the
// story uses.
func TestRunnersPageIsTold(t *testing.T) {
	page, err := os.ReadFile("../../docs/RUNNERS.md")
	if err != nil {
		t.Fatal(err)
	}
	story, err := os.ReadFile("testdata/script/runners.txtar")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:exec|exits \d+) (fairlead .*?)(?: &\w*&)?$`).FindAllStringSubmatch(string(story), -1) {
		told[m[1]] = true
	}
	commands := regexp.MustCompile(`(?m)^\$ (.+)$`).FindAllStringSubmatch(string(page), -1)
	if len(commands) < 30 {
		t.Errorf("the page has %d commands only", len(commands))
	}
	for _, m := range commands {
		if !told[m[1]] {
			t.Errorf("docs/RUNNERS.md has `%s`, which no story tells", m[1])
		}
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if !strings.Contains(string(story), "-- my-gke-runner.yaml --\n"+example+"-- ") {
		t.Error("the file that docs/RUNNERS.md shows is not the one of the story")
	}
}
