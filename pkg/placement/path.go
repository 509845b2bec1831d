package placement

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// MaxDepth is the maximum nesting of groups. With this limit, a path of the longest
// names has less than 1,300 bytes, and all groups above an install can be listed.
const MaxDepth = 20

// PathPattern is the regular expression of the paths that ParsePath accepts.
// RootPattern matches the path of the root group, BelowPattern the paths of all other
// groups.
const (
	RootPattern  = `^/?$`
	BelowPattern = `^` + pathForm + `$`
	PathPattern  = RootPattern + `|` + BelowPattern
	// MaxDepth names. The pattern has two repetitions because RE2 limits the product of
	// nested repetitions to 1,000.
	pathForm = fairlead.NameForm + `(/` + fairlead.NameForm + `){0,15}(/` + fairlead.NameForm + `){0,4}`
)

// Path identifies a group in an org: the names of the groups from the root to the
// group, joined by slashes. The empty path is the root group, which holds all other
// groups.
type Path string

// ParsePath reads a path. "/" and "" are the root group; other paths must not begin or
// end with a slash. The error is of fairlead.KindInvalid.
func ParsePath(text string) (Path, error) {
	if text == "" || text == "/" {
		return "", nil
	}
	names := strings.Split(text, "/")
	if len(names) > MaxDepth {
		return "", fairlead.Invalid(fairlead.CodeInvalidGroup, "the group %s is nested deeper than %d", shown(text), MaxDepth)
	}
	for _, name := range names {
		if err := fairlead.CheckName("group", name); err != nil {
			return "", &fairlead.Error{
				Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidGroup,
				Message: fmt.Sprintf("%s is not a group's path", shown(text)),
				Hint:    "Write the names of the groups with single slashes between them, such as customers/acme. Names are lower-case letters, digits and hyphens.",
			}
		}
	}
	return Path(text), nil
}

// String returns the path, or "/" for the root group.
func (p Path) String() string {
	if p == "" {
		return "/"
	}
	return string(p)
}

// Depth returns the number of names in the path: 0 for the root group.
func (p Path) Depth() int {
	if p == "" {
		return 0
	}
	return strings.Count(string(p), "/") + 1
}

// Contains reports whether q is p or a group below it.
func (p Path) Contains(q Path) bool {
	return p == "" || strings.HasPrefix(string(q), string(p)) && (len(q) == len(p) || q[len(p)] == '/')
}

// Parent returns the group that holds p. The root group is its own parent.
func (p Path) Parent() Path {
	i := strings.LastIndexByte(string(p), '/')
	return p[:max(0, i)]
}

// Lineage returns p and all groups above it, from the nearest to the root group. That
// is the order in which inherited settings are looked up.
func (p Path) Lineage() []Path {
	lineage := []Path{p}
	for p != "" {
		p = p.Parent()
		lineage = append(lineage, p)
	}
	return lineage
}

// shown quotes untrusted text for a message, cut after 120 bytes.
func shown(text string) string {
	const limit = 120
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return fmt.Sprintf("%q", text)
}
