package placement_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
)

// The OpenAPI documents use the patterns. The code uses checks, some without a regular
// expression. Both must accept the same texts.
func TestPatternAndCheckAgree(t *testing.T) {
	for name, test := range map[string]struct {
		pattern string
		check   func(string) error
		close   []string // accepted texts and similar ones
	}{
		"a name": {fairlead.NamePattern, func(s string) error { return fairlead.CheckName("app", s) },
			[]string{"", "a", "a-", "-a", "1a", "a1", "A", "a.b", "a\n", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 62) + "-"}},
		"a group": {placement.PathPattern, func(s string) error { _, err := placement.ParsePath(s); return err },
			[]string{"", "/", "//", "a/", "/a", "a/b", "a//b", "a/**", "a/B", strings.Repeat("a/", 19) + "a", strings.Repeat("a/", 20) + "a", strings.Repeat("a", 64) + "/a"}},
		"a group in a rule": {placement.GroupPattern, func(s string) error { return placement.Match{Group: s}.Check() },
			[]string{"", "/", "**", "/**", "a/**", "a**", "a/b/**", "a/**/b", "a/*", "/a/**", strings.Repeat("a/", 19) + "a/**", strings.Repeat("a/", 20) + "a/**"}},
		"a label's value in a rule": {placement.AskedPattern, func(s string) error {
			return placement.Match{Labels: placement.Labels{{Key: "a", Value: s}}}.Check()
		}, []string{"", "*", "**", "a*b", "*a*", "a**b", "-", "a b", "é"}},
	} {
		t.Run(name, func(t *testing.T) {
			pattern := regexp.MustCompile(test.pattern)
			same := func(t rapid.TB, s string) {
				if accepted := test.check(s) == nil; accepted != pattern.MatchString(s) {
					t.Errorf("%q: accepted by the check: %v, by the pattern: %v", s, accepted, !accepted)
				}
			}
			for _, s := range test.close {
				same(t, s)
			}
			rapid.Check(t, func(t *rapid.T) {
				s := rapid.OneOf(rapid.StringMatching(test.pattern), rapid.StringMatching(`[a-z/*.A0-]{0,70}`), rapid.String()).Draw(t, "text")
				if name == "a label's value in a rule" && len(s) > placement.MaxLabelLen {
					t.Skip("too long")
				}
				same(t, s)
			})
		})
	}
}
