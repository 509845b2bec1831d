// Package placement decides which runner serves an install. It is pure: an
// install, the rules and the runners go in, one runner and the reasons come
// out, the same for the same sets in whatever order they are listed.
//
// The first of these that has a runner decides:
//
//  1. the install's own runner: the one that it names, or that serves no other
//  2. the most specific rule that matches the install (see Compare)
//  3. a runner of the install's group
//  4. a runner of the nearest group above that has one
//  5. a shared runner
//
// An install is bound to what was decided at its first deployment and stays
// bound, whatever happens to rules and runners, until somebody refreshes it.
//
// What decides is who is there, never who is able to work: a runner that is
// disabled or draining is not passed over for one further down the list. A
// customer who switches a runner off must not find the work in somebody else's
// account; the deployment is refused and says why.
package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Scope is whom a runner serves.
type Scope string

// The scopes.
const (
	Own    Scope = "own"    // one install, and no other
	Group  Scope = "group"  // the installs of a group and of those below it
	Shared Scope = "shared" // the installs of every org; made by the operator only
)

// Storage is where a runner keeps the state of what it deploys. Two are the
// same place exactly if they are equal, so Place holds all that tells two of a
// kind apart: with storage on the runner's own disk, the runner as well.
type Storage struct {
	Kind  string `json:"kind"`
	Place string `json:"place"`
}

// Runner is what placement knows of a runner.
type Runner struct {
	ID      fairlead.RunnerID   `json:"id"`
	Name    string              `json:"name"`
	Org     fairlead.OrgID      `json:"org,omitempty"` // empty of a shared runner, and of no other
	Scope   Scope               `json:"scope"`
	Install fairlead.InstallID  `json:"install,omitempty"` // of Own
	Group   Path                `json:"group,omitempty"`   // of Group
	Mode    fairlead.RunnerMode `json:"state"`             // as its vendor has set it; an install that is bound to it stays with it in each
	Storage Storage             `json:"storage"`
}

// Install is what placement knows of an install.
type Install struct {
	ID     fairlead.InstallID `json:"id"`
	Name   string             `json:"name"`
	Org    fairlead.OrgID     `json:"org"`
	Group  Path               `json:"group,omitempty"`
	App    string             `json:"app"`
	Labels Labels             `json:"labels,omitempty"`
	// Names is the runner that the install was made with; empty of one that is
	// placed.
	Names fairlead.RunnerID `json:"names,omitempty"`
	// Bound is the runner that the install is bound to; nil before its first
	// deployment.
	Bound *Binding `json:"bound,omitempty"`
	// HasState is whether anything is, or may be, deployed: a change of the
	// state's storage then loses or moves something.
	HasState bool `json:"has_state,omitempty"`
}

// Level is how a runner came to be the one, in the order of precedence.
type Level int

// The levels. The zero Level is of no runner.
const (
	LevelOwn Level = iota + 1
	LevelRule
	LevelGroup
	LevelAncestor
	LevelShared
)

func levelNames() []string {
	return []string{"none", "own", "rule", "group", "ancestor", "shared"}
}

// String returns the level's word.
func (l Level) String() string {
	if names := levelNames(); 0 <= l && int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("level(%d)", int(l))
}

// MarshalText writes the level's word.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the level's word.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames(), string(text))
	if i < 0 {
		return fmt.Errorf("%q is no level of precedence", text)
	}
	*l = Level(i)
	return nil
}

// Decision is which runner serves an install, and by what.
type Decision struct {
	Runner  fairlead.RunnerID `json:"runner,omitempty"`
	Name    string            `json:"name,omitempty"` // of the runner
	Level   Level             `json:"level"`
	Rule    RuleID            `json:"rule,omitempty"` // of LevelRule
	Storage Storage           `json:"storage"`
}

// serves reports whether the runner may ever be given a job of the install.
// Nothing else in this package gives it one.
func (r *Runner) serves(in *Install) bool { return r.level(in) != 0 }

// level is at which level the runner is a candidate without any rule; 0 if the
// install is none of its business. One that the install names is its own,
// which brings nothing within reach that was not.
func (r *Runner) level(in *Install) Level {
	l := r.reach(in)
	if l != 0 && in.Names != "" && r.ID == in.Names {
		return LevelOwn
	}
	return l
}

func (r *Runner) reach(in *Install) Level {
	switch {
	case r.Scope == Shared && r.Org == "":
		return LevelShared
	case r.Org != in.Org || in.Org == "":
		return 0
	case r.Scope == Own && r.Install == in.ID && in.ID != "":
		return LevelOwn
	case r.Scope == Group && r.Group == in.Group:
		return LevelGroup
	case r.Scope == Group && r.Group.Contains(in.Group):
		return LevelAncestor
	}
	return 0
}

// compareRunners orders candidates: by level, the nearer group, those that
// take work, the older (identifiers sort by when they were made, so a new
// runner takes no installs from one that works).
func compareRunners(in *Install, a, b *Runner) int {
	return cmp.Or(
		cmp.Compare(a.level(in), b.level(in)),
		cmp.Compare(a.unnamed(in), b.unnamed(in)),
		-cmp.Compare(len(a.Group), len(b.Group)), // both hold the install, so the longer path is the nearer
		cmp.Compare(a.idle(), b.idle()),
		cmp.Compare(a.ID, b.ID),
	)
}

// unnamed is 0 for the runner that the install names, 1 for others.
func (r *Runner) unnamed(in *Install) int {
	if in.Names != "" && r.ID == in.Names {
		return 0
	}
	return 1
}

// available reports whether the runner can be given installs. A pause is soon
// over, and bindings last: it decides nothing.
func (r *Runner) available() bool { return r.Mode.TakesJobs() || r.Mode == fairlead.ModePaused }

// idle is 0 for a runner that can be given installs, 1 for others.
func (r *Runner) idle() int {
	if r.available() {
		return 0
	}
	return 1
}

// Decide returns the runner that the install would be bound to now, whatever
// it is bound to. Rules and runners may be those of all orgs: those of others
// are never looked at. It is linear in their number.
//
// Where there is an error, the decision names the runner that is in the way,
// if there is one. The error is of fairlead.KindConflict, with the code
// "no-runner" (no rule matches and no runner serves the install's group),
// "runner-unavailable" (the runner, and all others of its rank, are disabled
// or draining), "broken-rule" (the most specific rule names a runner that is
// gone, or that must not serve the install) or "named-runner-gone" (the same of
// the runner that the install names).
func Decide(in Install, rules []Rule, runners []Runner) (Decision, error) {
	var first *Runner
	for i := range runners {
		if r := &runners[i]; r.serves(&in) && (first == nil || compareRunners(&in, r, first) < 0) {
			first = r
		}
	}
	if in.Names != "" && (first == nil || first.ID != in.Names) {
		return Decision{Level: LevelOwn}, &fairlead.Error{
			Kind: fairlead.KindConflict, Code: fairlead.CodeNamedRunnerGone,
			Message: fmt.Sprintf("the runner that install %s was made with is gone, or does not serve group %s", in.Name, in.Group),
			Hint:    "{install.set-runner} names another. {install.unset-runner} lets the rules decide.",
			Args:    fairlead.Args{Install: in.Name},
		}
	}
	if first != nil && first.level(&in) == LevelOwn {
		return first.decision(LevelOwn, "").orUnavailable(in, first)
	}
	if rule := mostSpecific(&in, rules); rule != nil {
		return byRule(in, rule, runners)
	}
	if first != nil {
		return first.decision(first.level(&in), "").orUnavailable(in, first)
	}
	return Decision{}, &fairlead.Error{
		Kind: fairlead.KindConflict, Code: fairlead.CodeNoRunner,
		Message: fmt.Sprintf("no runner serves install %s: no rule matches it, and neither group %s nor one above has a runner, nor is there a shared one", in.Name, in.Group),
		Hint:    "Make a runner for it, or a rule that matches it. {runner.explain} shows what was considered.",
		Args:    fairlead.Args{Install: in.Name},
	}
}

func mostSpecific(in *Install, rules []Rule) *Rule {
	var best *Rule
	var heaviest weight
	for i := range rules {
		r := &rules[i]
		if r.Org != in.Org || !r.Match.matches(in) {
			continue
		}
		w := r.Match.weight()
		order := -1
		if best != nil {
			if order, _ = w.compare(heaviest); order == 0 {
				order = alphabet(r, best)
			}
		}
		if order < 0 {
			best, heaviest = r, w
		}
	}
	return best
}

// byRule obeys the rule. One whose runner cannot be given the install decides
// all the same: to go on to the next would send the install where somebody
// said that it must not run.
func byRule(in Install, rule *Rule, runners []Runner) (Decision, error) {
	r := named(rule, &in, runners)
	if r == nil {
		return Decision{Level: LevelRule, Rule: rule.ID}, &fairlead.Error{
			Kind: fairlead.KindConflict, Code: fairlead.CodeBrokenRule,
			Message: fmt.Sprintf("rule %s (%s) decides where install %s runs, and its runner is gone or does not serve group %s", rule.ID, rule.Match, in.Name, in.Group),
			Hint:    "Delete the rule, or make one for the same match that names another runner.",
		}
	}
	return r.decision(LevelRule, rule.ID).orUnavailable(in, r)
}

// named returns the rule's runner, or nil if the install must not see it.
func named(rule *Rule, in *Install, runners []Runner) *Runner {
	for i := range runners {
		if runners[i].ID == rule.Runner && runners[i].serves(in) {
			return &runners[i]
		}
	}
	return nil
}

func (r *Runner) decision(level Level, rule RuleID) Decision {
	return Decision{Runner: r.ID, Name: r.Name, Level: level, Rule: rule, Storage: r.Storage}
}

func (d Decision) orUnavailable(in Install, r *Runner) (Decision, error) {
	if r.available() {
		return d, nil
	}
	return d, &fairlead.Error{
		Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerUnavailable,
		Message: fmt.Sprintf("runner %s is to serve install %s, and it is %s", r.Name, in.Name, r.Mode),
		Hint:    "Enable it ({runner.enable}), or name another runner in a rule. No other takes its place by itself.",
		Args:    fairlead.Args{Runner: r.Name},
	}
}
