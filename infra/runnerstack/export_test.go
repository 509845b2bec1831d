package runnerstack

import (
	"regexp"
	"slices"
	"strings"
)

// Explains reports whether the table comments has the resource.
func Explains(id string) bool {
	_, ok := comments[id]
	return ok
}

// Reason returns the first characters of a statement's comment.
func Reason(sid string) string { return statements[sid][:20] }

// Guarded reports whether the boundary denies the action on the resource without the
// install's tag.
func Guarded(action, resource string) bool {
	like := func(pattern, value string) bool {
		return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$").MatchString(value)
	}
	exempt := slices.ContainsFunc(slices.Concat(makesNew, readsConfig), func(p string) bool { return like(p, action) })
	return !exempt && slices.ContainsFunc(othersTypes, func(p string) bool { return like(p, resource) }) || slices.ContainsFunc(othersData, func(p string) bool { return like(p, action) })
}

// DefaultActions returns the reasons of the default of AppActions, and ArguedActions those of
// the statements with a wildcard, by Sid.
func DefaultActions() map[string]string {
	out := map[string]string{}
	for _, d := range defaultActions {
		out[d.action] = d.why
	}
	return out
}

func ArguedActions() map[string]map[string]string { return argued }
