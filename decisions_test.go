package fairlead_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDecisionsHaveOneForm checks that each page of a decision has its status, context and
// decision in this order, and that the list of decisions names the page by its title.
func TestDecisionsHaveOneForm(t *testing.T) {
	const folder = "docs/contributing/decisions"
	form := regexp.MustCompile(`(?s)\A# [^\n]+\n\n\*\*Status:\*\* (accepted|replaced by \[.+?\]\(.+?\))\n\n\*\*Context\.\*\*.*\n\n\*\*Decision\.\*\*`)
	list, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 30 {
		t.Errorf("%s has %d pages, fewer than there were", folder, len(files))
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "README.md" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !form.Match(text) {
			t.Errorf("%s does not begin with title, status, context and decision", file)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		if !strings.Contains(string(list), "- ["+title+"]("+name+")\n") {
			t.Errorf("%s/README.md does not list %q of %s", folder, title, name)
		}
	}
}

// TestArchitectureIsShort checks the length of the page, because every new contributor
// reads the whole page. Decisions and details have their own pages.
func TestArchitectureIsShort(t *testing.T) {
	const most = 200 // lines
	text, err := os.ReadFile("docs/contributing/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > most {
		t.Errorf("docs/contributing/architecture.md has %d lines, at most %d: move decisions and details to their own pages", n, most)
	}
}
