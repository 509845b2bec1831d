package fairlead_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/page"
)

// longestTestName is the largest permitted number of characters of a test's name. Longer
// names tell the history of a bug instead of the guarantee.
const longestTestName = 50

// testName finds the declarations of tests.
var testName = regexp.MustCompile(`^func (Test\w+)`)

const allowedWords = "docs/contributing/allowed-words.txt"

// camel is the boundary between two words of an identifier.
var camel = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// TestRefusedWordsAreAbsent searches every tracked text file for the words that
// docs/contributing/glossary.md refuses, and for names of tests that are too long. It also
// fails if the list of exceptions has an exception that no file needs. UPDATE_WORDS=1
// writes the list.
func TestRefusedWordsAreAbsent(t *testing.T) {
	var refused []string
	for _, row := range page.Table(t, "docs/contributing/glossary.md", "refused", "write") {
		refused = append(refused, row[0])
	}
	if len(refused) < 10 {
		t.Fatalf("the glossary refuses %q only", refused)
	}
	word := regexp.MustCompile(`(?i)\b(` + strings.Join(refused, "|") + `)\b`)
	found := map[string]string{} // "file word" → the first place
	for _, file := range trackedText(t) {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := testName.FindStringSubmatch(line); strings.HasSuffix(file, ".go") && m != nil && len(m[1]) > longestTestName {
				found[file+" "+m[1]] = fmt.Sprintf("%s:%d: the name %s, which has %d characters of at most %d,", file, i+1, m[1], len(m[1]), longestTestName)
			}
			line = strings.ReplaceAll(camel.ReplaceAllString(line, "$1$3 $2$4"), "_", " ")
			for _, w := range word.FindAllString(line, -1) {
				key := file + " " + strings.ToLower(w)
				if found[key] == "" {
					found[key] = fmt.Sprintf("%s:%d: %q", file, i+1, strings.ToLower(w))
				}
			}
		}
	}
	if os.Getenv("UPDATE_WORDS") != "" {
		keys := make([]string, 0, len(found))
		for key := range found {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		if err := os.WriteFile(allowedWords, []byte(strings.Join(keys, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	list, err := os.ReadFile(allowedWords)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Split(strings.TrimSpace(string(list)), "\n") {
		if found[key] == "" {
			t.Errorf("%s allows %q, which is not there: delete the line", allowedWords, key)
		}
		delete(found, key)
	}
	for _, place := range found {
		t.Errorf("%s is refused by docs/contributing/glossary.md", place)
	}
}

// trackedText returns the files that git tracks. It omits files that no person of this
// project writes, and files that contain the refused words by design.
func trackedText(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("no checkout of git: ", err)
	}
	var files []string
	for _, name := range bytes.Split(bytes.TrimRight(out, "\x00"), []byte{0}) {
		file := string(name)
		switch {
		case file == "docs/contributing/glossary.md", file == allowedWords, file == "words_test.go", file == "LICENSE":
		case strings.HasSuffix(file, ".sum"), strings.HasSuffix(file, "package-lock.json"), strings.HasSuffix(file, ".png"):
		default:
			files = append(files, file)
		}
	}
	return files
}
