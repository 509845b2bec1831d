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

// TestPagesNameTestsThatExist: a page that promises something names the test
// that shows it, and each row of docs/RELIABILITY.md names one.
func TestPagesNameTestsThatExist(t *testing.T) {
	exists := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(code), -1) {
			exists[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Za-z]\\w+)[/`]")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !exists[m[1]] {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}

	reliability, err := os.ReadFile("docs/RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	_, promises, _ := strings.Cut(string(reliability), "## Promises")
	promises, _, _ = strings.Cut(promises, "\n## ")
	for line := range strings.Lines(promises) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Promise") {
			continue
		}
		if rows++; !named.MatchString(line) && !strings.Contains(line, "`make ") {
			t.Errorf("docs/RELIABILITY.md promises without a test: %s", line)
		}
	}
	if rows < 10 {
		t.Errorf("docs/RELIABILITY.md has %d rows", rows)
	}
}
