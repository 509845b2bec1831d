package oidc

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// wild reports whether a * matches the byte. A * does not match separators of a claim's
// parts (: / @ | and other separators of issuers), so a pattern and its matches have the
// same number of parts. A * matches only ASCII, so it does not match characters that look
// like ASCII letters.
func wild(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-'
}

// maxPattern is the maximum size of a pattern, in bytes.
const maxPattern = 512

// checkPattern returns an error if p is not a valid pattern of the claim.
func checkPattern(claim, p string) error {
	literal := strings.IndexFunc(p, func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }) >= 0
	switch {
	case p == "":
		return invalid("the pattern of claim %q is empty", claim)
	case len(p) > maxPattern:
		return invalid("the pattern of claim %q has more than %d bytes", claim, maxPattern)
	case !printable(p):
		return invalid("the pattern of claim %q has characters other than printable ASCII, or begins or ends with a space", claim)
	case !literal:
		return invalid("the pattern of claim %q is %q, which every token could match: it needs a letter or a digit", claim, p)
	case strings.Contains(p, "**"):
		return invalid("the pattern of claim %q is %q: use single *, each matches within one part of a claim", claim, p)
	}
	return nil
}

// match reports whether s matches the pattern. A * matches one or more bytes for which
// wild holds; every other byte matches itself. The time is proportional to the product of
// both lengths.
func match(pattern, s string) bool {
	at := make([]bool, len(pattern)+1) // true for each position of the pattern that can match the next byte
	at[0] = true
	for n := range len(s) {
		next := make([]bool, len(at))
		for i := range len(pattern) {
			switch {
			case !at[i]:
			case pattern[i] == '*' && wild(s[n]):
				next[i], next[i+1] = true, true
			case pattern[i] != '*' && pattern[i] == s[n]:
				next[i+1] = true
			}
		}
		at = next
	}
	return at[len(pattern)]
}

// printable reports whether s has only printable ASCII, and no space at its start or end.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0 && strings.Trim(s, " ") == s
}

func invalid(format string, args ...any) error {
	e := fairlead.Invalid(fairlead.CodeInvalidOIDCTrust, format, args...)
	e.Hint = "docs/vendor/identity.md has an example for each platform."
	return e
}
