package oidc

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// wild reports whether a * may stand for the byte. It may not for what
// separates the parts of a claim (: / @ | and whatever else issuers use), nor
// for anything beyond ASCII: a pattern has as many parts as what it matches,
// and a look-alike of a letter is no letter.
func wild(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-'
}

// maxPattern bounds a pattern, in bytes.
const maxPattern = 512

// checkPattern returns why p is no pattern of the claim, or nil.
func checkPattern(claim, p string) error {
	literal := strings.IndexFunc(p, func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }) >= 0
	switch {
	case p == "":
		return invalid("claim %q is to be empty: name what it is", claim)
	case len(p) > maxPattern:
		return invalid("what claim %q is to be has more than %d bytes", claim, maxPattern)
	case !printable(p):
		return invalid("what claim %q is to be has other characters than printable ASCII, which might look like one and be another", claim)
	case !literal:
		return invalid("claim %q is to be %q, which any token has: name at least a part of it", claim, p)
	case strings.Contains(p, "**"):
		return invalid("claim %q is to be %q: a * stands within one part of a claim, and ** for nothing", claim, p)
	}
	return nil
}

// match reports whether s is what the pattern says. A * stands for one or more
// characters for which wild holds; everything else stands for itself. It takes
// as long as the one times the other.
func match(pattern, s string) bool {
	at := make([]bool, len(pattern)+1) // which places of the pattern come next
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

// printable reports whether s is of printable ASCII, without spaces at its ends.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0 && strings.Trim(s, " ") == s
}

func invalid(format string, args ...any) error {
	e := fairlead.Invalid(fairlead.CodeInvalidOIDCTrust, format, args...)
	e.Hint = "docs/vendor/identity.md has an example for each platform."
	return e
}
