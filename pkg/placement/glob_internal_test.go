package placement

import (
	"regexp"
	"strings"
	"testing"
)

// TestAPatternMatchesWhatItsRegularExpressionDoes holds glob to all patterns and
// all texts of up to five bytes of a small alphabet.
func TestAPatternMatchesWhatItsRegularExpressionDoes(t *testing.T) {
	texts := words("ab", 5)
	for _, pattern := range words("ab*", 5) {
		re := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
		for _, text := range texts {
			if got, want := glob(pattern, text), re.MatchString(text); got != want {
				t.Errorf("%q and %q: %t", pattern, text, got)
			}
		}
	}
}

// words are all of up to n letters.
func words(letters string, n int) []string {
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
