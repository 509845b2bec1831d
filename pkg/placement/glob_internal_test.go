package placement

import (
	"regexp"
	"strings"
	"testing"
)

// The test compares glob with a regular expression, for all patterns and all texts of
// up to five bytes of a small alphabet.
func TestGlobMatchesAsARegularExpression(t *testing.T) {
	texts := allTexts("ab", 5)
	for _, pattern := range allTexts("ab*", 5) {
		re := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
		for _, text := range texts {
			if got, want := glob(pattern, text), re.MatchString(text); got != want {
				t.Errorf("glob(%q, %q) = %t", pattern, text, got)
			}
		}
	}
}

// allTexts returns all texts of up to n letters.
func allTexts(letters string, n int) []string {
	all, last := []string{""}, []string{""}
	for range n {
		var next []string
		for _, w := range last {
			for _, l := range letters {
				next = append(next, w+string(l))
			}
		}
		all, last = append(all, next...), next
	}
	return all
}
