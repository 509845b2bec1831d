package awsiam

import "strings"

const (
	digits = "0123456789"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	lower  = "abcdefghijklmnopqrstuvwxyz"
	// names are the characters of IAM's names: [\w+=,.@-].
	names = digits + upper + lower + "_+=,.@-"
)

// shape is what a text must be: a prefix, and then between min and max of some
// characters, in bytes. It is no regular expression, because each process of a
// runner, of which every job has one, would compile those when it starts, and
// counted repetitions take milliseconds.
type shape struct {
	prefix, chars string
	min, max      int
}

func (s shape) match(v string) bool {
	rest, ok := strings.CutPrefix(v, s.prefix)
	return ok && len(rest) >= s.min && len(rest) <= s.max && strings.Trim(rest, s.chars) == ""
}

// The shapes of what goes into a header. None of them has a space, a comma, a
// slash where it would matter, or a line break, with which a value could end
// its field and begin another.
func accessKeyID() shape {
	// ASIA begins the key of temporary credentials; a role has no others. AKIA
	// is the static key of a user. Lengths: IAM's AccessKey, 16 to 128.
	return shape{"ASIA", digits + upper, 12, 124}
}

func sessionToken() shape { return shape{"", digits + upper + lower + "+/=_.-", 16, maxToken} }
func signature() shape    { return shape{"", digits + "abcdef", 64, 64} }
func nonce() shape        { return shape{"", digits + upper + lower + "_.-", 16, 256} }
func audience() shape     { return shape{"", digits + lower + ".:[]-", 1, 300} }

// The shapes of an identity. Sources: IAM's Role (name 1 to 64), AssumeRole
// (session name 2 to 64), neither of which has a slash; unique identifiers are
// 16 to 128 letters and digits.
func accountID() shape   { return shape{"", digits, 12, 12} }
func roleID() shape      { return shape{"AROA", digits + upper, 12, 124} }
func roleName() shape    { return shape{"", names, 1, 64} }
func sessionName() shape { return shape{"", names, 2, 64} }

// isRolePath reports whether IAM takes the path: visible ASCII characters
// between slashes, 512 at most.
func isRolePath(p string) bool {
	if len(p) > 512 || !strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") {
		return false
	}
	for i := range len(p) {
		if p[i] < '!' || p[i] > '~' {
			return false
		}
	}
	return true
}
