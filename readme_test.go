package fairlead_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPagesLeadSomewhere: every link of the README and of docs/ to a file of
// this repository leads to one, and what the README shows of an example is the
// example.
func TestPagesLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}

	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n# (examples/[^\n]+)\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(shown) == 0 {
		t.Error("the README shows no example")
	}
	for _, m := range shown {
		file, err := os.ReadFile(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(file), m[2]) {
			t.Errorf("the README shows another %s than there is", m[1])
		}
	}
}
