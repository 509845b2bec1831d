package awsaction

import (
	"fmt"
	"slices"
	"strings"
)

// The operations whose roles change something. An app may declare, and a stack may grant,
// actions for one of them alone.
const (
	Provision   = "provision"
	Deploy      = "deploy"
	Deprovision = "deprovision"
)

// Operations returns the operations, in the order in which an app meets them.
func Operations() []string { return []string{Provision, Deploy, Deprovision} }

// jobs names the jobs of an operation for a customer.
var jobs = map[string]string{
	Provision:   "A job that creates or changes infrastructure",
	Deploy:      "A job that deploys in another way, such as a script,",
	Deprovision: "A job that removes infrastructure",
}

// Grants are the action patterns that an app declares or a stack grants. The zero Grants
// has none.
type Grants struct {
	All []string            // of all operations, and of the app's own roles; sorted
	Of  map[string][]string // of one operation, some of All; an operation without an entry has All
}

// For returns the patterns of an operation.
func (g Grants) For(operation string) []string {
	if own, ok := g.Of[operation]; ok {
		return own
	}
	return g.All
}

// Merge returns the patterns of both.
func (g Grants) Merge(other Grants) Grants {
	out := Grants{All: Union(g.All, other.All)}
	if len(g.Of)+len(other.Of) > 0 {
		out.Of = map[string][]string{}
		for _, o := range Operations() {
			out.Of[o] = Union(g.For(o), other.For(o))
		}
	}
	return out
}

// Missing returns the patterns of g that the other does not grant: rds:Describe*, or
// "rds:Describe* for deploy" if only this operation lacks it. It returns nil if there are
// none.
func (g Grants) Missing(granted Grants) []string {
	missing := Missing(g.All, granted.All)
	for _, o := range Operations() {
		for _, action := range Missing(g.For(o), granted.For(o)) {
			if !slices.Contains(missing, action) {
				missing = append(missing, action+" for "+o)
			}
		}
	}
	return missing
}

// Sentences tells a customer what the app may use, and what a job of one operation may use
// of it. It returns nil if the app declares nothing.
func (g Grants) Sentences() []string {
	out := Sentences(g.All)
	for _, o := range Operations() {
		own, ok := g.Of[o]
		if !ok || slices.Equal(own, g.All) {
			continue
		}
		var parts []string
		for _, u := range Uses(own) {
			if u.Actions == nil {
				parts = append(parts, u.Name)
			} else {
				parts = append(parts, strings.Join(u.Actions, ", "))
			}
		}
		out = append(out, fmt.Sprintf("%s may use only: %s.", jobs[o], strings.Join(parts, ", ")))
	}
	return out
}
