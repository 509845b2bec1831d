package awsiam

import "strings"

const (
	digits = "0123456789"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	lower  = "abcdefghijklmnopqrstuvwxyz"
	// names has the characters that IAM permits in names: [\w+=,.@-].
	names = digits + upper + lower + "_+=,.@-"
)

// shape describes a valid text: a prefix, followed by min to max bytes of some
// characters. It is not a regular expression, because a runner has one process per job.
// Each process would compile the regular expressions at its start, and counted
// repetitions take milliseconds.
type shape struct {
	prefix, chars string
	min, max      int
}

func (s shape) match(v string) bool {
	rest, ok := strings.CutPrefix(v, s.prefix)
	return ok && len(rest) >= s.min && len(rest) <= s.max && strings.Trim(rest, s.chars) == ""
}

// The shapes of the values that go into a header. None permits a space, a comma, a line
// break, or a slash in the access key. With these characters, a value could end its
// field of the header and begin another field.
func accessKeyID() shape {
	// Keys of temporary credentials begin with ASIA, and a role has only these. A
	// user's static key begins with AKIA. Lengths: IAM's AccessKey, 16 to 128.
	return shape{"ASIA", digits + upper, 12, 124}
}

func sessionToken() shape { return shape{"", digits + upper + lower + "+/=_.-", 16, maxToken} }
func signature() shape    { return shape{"", digits + "abcdef", 64, 64} }
func nonce() shape        { return shape{"", digits + upper + lower + "_.-", 16, 256} }
func audience() shape     { return shape{"", digits + lower + ".:[]-", 1, 300} }

// The shapes of an identity. Sources: IAM's Role (name 1 to 64) and AssumeRole (session
// name 2 to 64). Neither permits a slash. Unique identifiers have 16 to 128 letters and
// digits.
func accountID() shape   { return shape{"", digits, 12, 12} }
func roleID() shape      { return shape{"AROA", digits + upper, 12, 124} }
func roleName() shape    { return shape{"", names, 1, 64} }
func sessionName() shape { return shape{"", names, 2, 64} }

// isRolePath reports whether IAM accepts the path: visible ASCII characters between
// slashes, at most 512.
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
