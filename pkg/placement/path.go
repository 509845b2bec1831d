package placement

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// MaxDepth is how deep groups nest. It keeps a path of the longest names below
// 1,300 bytes, and an install's ancestors few enough to be listed.
const MaxDepth = 20

// PathPattern is the regular expression of what ParsePath takes; RootPattern that
// of the root group alone, and BelowPattern that of every other.
const (
	RootPattern  = `^/?$`
	BelowPattern = `^` + pathForm + `$`
	PathPattern  = RootPattern + `|` + BelowPattern
	// MaxDepth names, in two parts: RE2 repeats nothing 1,000 times.
	pathForm = fairlead.NameForm + `(/` + fairlead.NameForm + `){0,15}(/` + fairlead.NameForm + `){0,4}`
)

// Path names a group inside an org: the names of the groups on the way to it,
// joined by slashes. The empty path is the org's root group, which holds all
// others.
type Path string

// ParsePath reads a path. "/" and "" are the root group; a slash at the
// beginning or the end is refused elsewhere. The error is of
// fairlead.KindInvalid.
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

// String returns the path, and "/" for the root group.
func (p Path) String() string {
	if p == "" {
		return "/"
	}
	return string(p)
}

// Depth is how many groups there are between the root group and p, p included:
// 0 for the root group.
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

// Parent is the group that holds p. The root group is its own parent.
func (p Path) Parent() Path {
	i := strings.LastIndexByte(string(p), '/')
	return p[:max(0, i)]
}

// Lineage returns p and the groups that hold it, from the nearest to the root
// group: the order in which what is inherited is looked for.
func (p Path) Lineage() []Path {
	lineage := []Path{p}
	for p != "" {
		p = p.Parent()
		lineage = append(lineage, p)
	}
	return lineage
}

// shown quotes text that nobody has checked, cut to what a message can hold.
func shown(text string) string {
	const limit = 120
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return fmt.Sprintf("%q", text)
}
