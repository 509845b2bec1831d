// Package awsaction handles IAM action patterns such as lambda:* or rds:Describe*. An app
// declares which ones it uses, and the parameter AppActions of the customer's stack grants
// them. The package is pure.
package awsaction

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// refused lists the services that no app may use: their actions would lift the boundary
// of the customer's stack. The template has statements of its own for the app's roles.
var refused = []string{"iam", "sts", "organizations", "account", "billing", "sso", "sso-directory", "identitystore"}

// Refused returns the prefixes of the services that no app may use.
func Refused() []string { return slices.Clone(refused) }

// TemplatePattern is the regular expression of one pattern in the parameter AppActions, in
// the syntax of CloudFormation, which is Java's. Check accepts the same patterns.
func TemplatePattern() string {
	return `^(?!(\*|` + strings.Join(refused, "|") + `)(:|$))` + plain + `$`
}

// OptionalPattern is TemplatePattern for a parameter that may be empty.
func OptionalPattern() string { return `^(` + strings.Trim(TemplatePattern(), "^$") + `)?$` }

// Pattern is the regular expression of a pattern, without regard to Refused.
func Pattern() string { return `^` + plain + `$` }

// ServicePattern is the regular expression of a service's prefix, without regard to Refused.
func ServicePattern() string { return `^` + service + `$` }

const (
	service = `[a-z0-9-]+`
	plain   = service + `:[A-Za-z0-9*]+`
)

var (
	servicePattern = pattern.New(ServicePattern())
	actionPattern  = pattern.New(Pattern())
)

// MaxSize limits the declaration of an app: the sum of Size of its patterns. The stack's
// boundary has each pattern, and IAM allows 6,144 characters in a boundary.
const MaxSize = 440

// Size returns the characters that the pattern takes in a policy: with quotes and a comma.
func Size(action string) int { return len(action) + len(`"",`) }

// CheckService returns why no app may declare the service; "" if it may. The parameter
// hint of the result is for the author.
func CheckService(name string) (problem, hint string) {
	switch {
	case slices.Contains(refused, name):
		return fmt.Sprintf("an app may not use the service %s", name), refusedHint
	case !servicePattern.MatchString(name):
		return "this is not the prefix of an AWS service", "Write the part of its IAM actions before the colon, such as lambda or elasticloadbalancing."
	}
	return "", ""
}

const refusedHint = "Roles of the app need no declaration: the stack lets it create roles below its own path. Users, sessions and settings of the account belong to the customer."

// Check returns why no app may declare the pattern; "" if it may.
func Check(action string) (problem, hint string) {
	prefix, _, _ := strings.Cut(action, ":")
	switch {
	case slices.Contains(refused, prefix):
		return CheckService(prefix)
	case !actionPattern.MatchString(action):
		return "this is not an IAM action", "Write SERVICE:ACTION, such as rds:Describe* or lambda:*. The service has no wildcard."
	}
	return "", ""
}

// Of returns the patterns of an app that uses all actions of the services, and the given
// patterns: sorted, and without patterns that another one covers.
func Of(services, actions []string) []string {
	all := slices.Clone(actions)
	for _, s := range services {
		all = append(all, s+":*")
	}
	return reduce(all)
}

// Union returns the patterns of both lists, sorted, and without those that another covers.
func Union(a, b []string) []string { return reduce(slices.Concat(a, b)) }

func reduce(all []string) (out []string) {
	slices.Sort(all)
	all = slices.Compact(all)
	for i, a := range all {
		if !slices.ContainsFunc(append(slices.Clone(all[:i]), all[i+1:]...), func(other string) bool { return covers(other, a) && (!covers(a, other) || other < a) }) {
			out = append(out, a)
		}
	}
	return out
}

// Missing returns the wanted patterns that no granted pattern covers, in the order of
// wanted. A wanted pattern that only several granted ones cover together counts as missing.
func Missing(wanted, granted []string) (missing []string) {
	for _, w := range wanted {
		if !slices.ContainsFunc(granted, func(g string) bool { return covers(g, w) }) {
			missing = append(missing, w)
		}
	}
	return missing
}

// covers reports whether each action that matches the pattern b matches the pattern a. IAM
// ignores the case of actions.
func covers(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	parts := strings.Split(a, "*")
	if len(parts) == 1 {
		return a == b
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(b) < len(first)+len(last) || !strings.HasPrefix(b, first) || !strings.HasSuffix(b, last) {
		return false
	}
	rest := b[len(first) : len(b)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

// Use is what an app uses of one service.
type Use struct {
	Service string   // prefix of the service's actions
	Name    string   // of the service, for people
	Actions []string // nil: all actions
}

// Uses groups patterns by service, sorted by the services' names.
func Uses(actions []string) []Use {
	by := map[string]*Use{}
	for _, a := range slices.Sorted(slices.Values(actions)) {
		prefix, _, _ := strings.Cut(a, ":")
		if by[prefix] == nil {
			by[prefix] = &Use{Service: prefix, Name: Name(prefix)}
		}
		by[prefix].Actions = append(by[prefix].Actions, a)
	}
	var out []Use
	for _, prefix := range slices.Sorted(maps.Keys(by)) {
		if u := *by[prefix]; slices.Contains(u.Actions, prefix+":*") {
			out = append(out, Use{Service: u.Service, Name: u.Name})
		} else {
			out = append(out, u)
		}
	}
	slices.SortStableFunc(out, func(a, b Use) int { return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return out
}

// Sentences tells a customer what the app may use. It returns nil for an empty list.
func Sentences(actions []string) (out []string) {
	var whole []string
	for _, u := range Uses(actions) {
		if u.Actions == nil {
			whole = append(whole, u.Name)
		}
	}
	if len(whole) > 0 {
		out = append(out, "The app may use: "+strings.Join(whole, ", ")+".")
	}
	for _, u := range Uses(actions) {
		if u.Actions != nil {
			out = append(out, fmt.Sprintf("Of %s it may use only: %s.", u.Name, strings.Join(u.Actions, ", ")))
		}
	}
	return out
}
