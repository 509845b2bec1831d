package main_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/page"
)

// TestPagesAreTold: each command of a page is in one of its stories, and the files
// that the page shows are those that the stories use.
func TestPagesAreTold(t *testing.T) {
	for _, of := range []struct {
		page     string
		stories  []string
		commands int // at least
		files    []string
	}{
		{"RUNNERS.md", []string{"runners.txtar"}, 30, []string{"my-gke-runner.yaml"}},
		{"IDENTITY.md", []string{"identity.txtar", "tokens.txtar"}, 16, []string{"eks.yaml", "", "github.yaml"}},
	} {
		text, err := os.ReadFile("../../docs/" + of.page)
		if err != nil {
			t.Fatal(err)
		}
		var story []byte
		for _, name := range of.stories {
			more, err := os.ReadFile("testdata/script/" + name)
			if err != nil {
				t.Fatal(err)
			}
			story = append(story, more...)
		}
		told := commands(string(story))
		shown := regexp.MustCompile(`(?m)^\$ (.+)$`).FindAllStringSubmatch(string(text), -1)
		if len(shown) < of.commands {
			t.Errorf("docs/%s has %d commands only", of.page, len(shown))
		}
		for _, m := range shown {
			if !told[m[1]] {
				t.Errorf("docs/%s has `%s`, which no story tells", of.page, m[1])
			}
		}
		rest := string(text)
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

// commands are the commands of a story.
func commands(story string) map[string]bool {
	told := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:exec|exits \d+) (fairlead(?:-runner)? .*?)(?: &\w*&)?$`).FindAllStringSubmatch(story, -1) {
		told[m[1]] = true
	}
	return told
}

// unshown are the rows that nothing shows yet: each is a debt.
func unshown() []string { return nil }

// TestEveryPromiseIsShown reads the table of promises: every row from A2 to A16
// is there once, its commands are told in some story, and its tests are in the
// folders that it names. It is told which rows are not kept yet, and does not
// let that be forgotten when they are.
func TestEveryPromiseIsShown(t *testing.T) {
	stories, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, name := range stories {
		story, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(told, commands(string(story)))
	}
	seen := map[string]int{}
	for _, row := range page.Table(t, "docs/RUNNERS.md", "row", "promise", "shown by", "tests") {
		id, shown, tests := row[0], row[2], row[3]
		seen[id]++
		if notYet := shown == "not yet" || tests == "not yet"; notYet || slices.Contains(unshown(), id) {
			if !notYet || !slices.Contains(unshown(), id) {
				t.Errorf("%s is shown by %s and %s, and is among those that nothing shows: %t", id, shown, tests, slices.Contains(unshown(), id))
			}
			continue
		}
		found := page.Code(shown)
		if len(found) == 0 {
			t.Errorf("%s names no command", id)
		}
		for _, command := range found {
			if !told[command] {
				t.Errorf("%s has `%s`, which no story tells", id, command)
			}
		}
		found = page.Code(tests)
		if len(found) < 2 {
			t.Errorf("%s names no test", id)
		}
		folder := ""
		for _, name := range found {
			if !strings.HasPrefix(name, "Test") {
				folder = name
				continue
			}
			if !declares(t, "../../"+folder, name) {
				t.Errorf("%s names %s of %s, which is not there", id, name, folder)
			}
		}
	}
	for n := 2; n <= 16; n++ {
		if id := fmt.Sprintf("A%d", n); seen[id] != 1 {
			t.Errorf("row %s is there %d times", id, seen[id])
		}
	}
}

// declares reports whether a test file of the folder declares the test.
func declares(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		code, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(code), "\nfunc "+test+"(t *testing.T)") {
			return true
		}
	}
	return false
}
