package main_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/page"
)

// TestCommandsOfPagesAreInStories compares the pages with the scripts in testdata/script.
// It checks that a script runs each command that a page shows after "$ ". If a YAML block
// of a page begins with the name of a file of a script, the block must have the text of
// this file. The pages must show the files that the variable want lists.
func TestCommandsOfPagesAreInStories(t *testing.T) {
	var all []byte
	stories, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stories {
		story, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, story...), "\n-- end --\n"...)
	}
	run := commands(string(all))
	others, err := filepath.Glob("testdata/bundle/*.txtar") // they need a cluster
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range others {
		story, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(run, commands(string(story)))
	}
	files := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?s)\n-- (\S+\.yaml) --\n(.*?)\n-- `).FindAllStringSubmatch(strings.ReplaceAll(string(all), "\n-- ", "\n\n-- "), -1) {
		files[m[1]] = append(files[m[1]], m[2])
	}

	var pages []string
	err = filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^\$ (.+)$`)
	block := regexp.MustCompile("(?s)```yaml\n# (\\S+\\.yaml)\n(.*?)```")
	shown, want := 0, map[string]bool{"my-gke-runner.yaml": true, "eks.yaml": true, "github.yaml": true}
	for _, name := range pages {
		if isFollowed(name) {
			continue // TestTutorialsRun runs the commands of this page
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			shown++
			if !run[m[1]] {
				t.Errorf("%s shows `%s`, which no script runs", name, m[1])
			}
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			if len(files[m[1]]) > 0 && !slices.Contains(files[m[1]], m[2]) {
				t.Errorf("%s shows a %s that differs from the scripts", name, m[1])
			}
			delete(want, m[1])
		}
	}
	if shown < 46 {
		t.Errorf("the pages show only %d commands", shown)
	}
	for name := range want {
		t.Errorf("no page shows the file %s", name)
	}
}

// isFollowed reports whether TestTutorialsRun runs the commands of the page itself.
func isFollowed(page string) bool {
	return filepath.Base(filepath.Dir(page)) == "tutorial"
}

// commands returns the commands of a script.
func commands(story string) map[string]bool {
	ran := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:exec|exits \d+) (fairlead(?:-runner)? .*?)(?: &\w*&)?$`).FindAllStringSubmatch(story, -1) {
		ran[m[1]] = true
	}
	return ran
}

// unshown returns the IDs of the promises that have no script or no test yet.
func unshown() []string { return nil }

// TestEveryPromiseIsShown reads the table of promises to operators of runners. It checks that
// a script runs the commands of each row, and that the tests of the row exist in the folders
// that the row names. A row with "not yet" must be listed in unshown.
func TestEveryPromiseIsShown(t *testing.T) {
	stories, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for _, name := range stories {
		story, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(ran, commands(string(story)))
	}
	seen := map[string]int{}
	for _, row := range page.Table(t, "docs/contributing/evidence.md", "area", "guarantee", "test", "command or figure") {
		if row[0] != "runner" {
			continue
		}
		id, tests, shown := row[1], row[2], row[3]
		seen[id]++
		if notYet := shown == "not yet" || tests == "not yet"; notYet || slices.Contains(unshown(), id) {
			if !notYet || !slices.Contains(unshown(), id) {
				t.Errorf("%s has the commands %s and the tests %s, and unshown lists it: %t", id, shown, tests, slices.Contains(unshown(), id))
			}
			continue
		}
		found := page.Code(shown)
		if len(found) == 0 {
			t.Errorf("%s names no command", id)
		}
		for _, command := range found {
			if !ran[command] {
				t.Errorf("%s has `%s`, which no script runs", id, command)
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
				t.Errorf("%s names %s of %s, which does not exist", id, name, folder)
			}
		}
	}
	if len(seen) != 15 {
		t.Errorf("the page has %d promises, want 15", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("the promise %q has %d rows", id, n)
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
