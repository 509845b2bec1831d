// Package placement decides which runner serves an install. It is pure: from an
// install, the rules and the runners it computes one runner and the reasons. The order
// of the lists does not matter.
//
// The first of these levels that has a runner decides:
//
//  1. the install's own runner: the runner that the install names, or a runner that serves only this install
//  2. the most specific rule that matches the install (see Compare)
//  3. a runner of the install's group
//  4. a runner of the nearest group above that has a runner
//  5. a shared runner
//
// The first deployment binds the install to the runner. The install stays bound until
// a person refreshes it, even if rules and runners change.
//
// The mode of a runner does not change the level: a disabled or draining runner is not
// skipped for a runner of a lower level. If a customer disables a runner, the jobs must
// not move to another account. Instead, the deployment is refused, with the reason.
package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Scope defines which installs a runner serves.
type Scope string

// The scopes.
const (
	Own    Scope = "own"    // one install only
	Group  Scope = "group"  // the installs of a group and of the groups below
	Shared Scope = "shared" // the installs of every org; only an operator creates such a runner
)

// Storage is where a runner keeps the states of its installs. Two storages hold the
// same states exactly if they are equal. So Place holds everything that distinguishes
// two storages of a kind. For storage on the runner's own disk, Place includes the
// runner.
type Storage struct {
	Kind  string `json:"kind"`
	Place string `json:"place"`
}

// Runner holds the data of a runner that placement needs.
type Runner struct {
	ID      fairlead.RunnerID   `json:"id"`
	Name    string              `json:"name"`
	Org     fairlead.OrgID      `json:"org,omitempty"` // empty exactly if the runner is shared
	Scope   Scope               `json:"scope"`
	Install fairlead.InstallID  `json:"install,omitempty"` // for scope Own
	Group   Path                `json:"group,omitempty"`   // for scope Group
	Mode    fairlead.RunnerMode `json:"state"`             // set by the vendor; bound installs stay bound in every mode
	Storage Storage             `json:"storage"`
}

// Install holds the data of an install that placement needs.
type Install struct {
	ID     fairlead.InstallID `json:"id"`
	Name   string             `json:"name"`
	Org    fairlead.OrgID     `json:"org"`
	Group  Path               `json:"group,omitempty"`
	App    string             `json:"app"`
	Labels Labels             `json:"labels,omitempty"`
	// Names is the runner that the install names; empty if the rules choose.
	Names fairlead.RunnerID `json:"names,omitempty"`
	// Bound is the runner that the install is bound to; nil before its first
	// deployment.
	Bound *Binding `json:"bound,omitempty"`
	// HasState reports whether resources are, or may be, deployed. If HasState is true,
	// a change of the storage must move the state, or the state is lost.
	HasState bool `json:"has_state,omitempty"`
}

// Level is the reason why a runner was chosen, in order of precedence.
type Level int

// The levels. The zero Level means no runner.
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

// String returns the level's name.
func (l Level) String() string {
	if names := levelNames(); 0 <= l && int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("level(%d)", int(l))
}

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the level's name.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames(), string(text))
	if i < 0 {
		return fmt.Errorf("%q is not a level of precedence", text)
	}
	*l = Level(i)
	return nil
}

// Decision is the runner that serves an install, and the level that decided.
type Decision struct {
	Runner  fairlead.RunnerID `json:"runner,omitempty"`
	Name    string            `json:"name,omitempty"` // name of the runner
	Level   Level             `json:"level"`
	Rule    RuleID            `json:"rule,omitempty"` // for LevelRule
	Storage Storage           `json:"storage"`
}

// serves reports whether the runner may run jobs of the install at all. All decisions
// of this package choose only such runners.
func (r *Runner) serves(in *Install) bool { return r.level(in) != 0 }

// level returns the level at which the runner is a candidate without a rule, or 0 if
// it may not serve the install. A runner that the install names has LevelOwn, but only
// if it may serve the install anyway.
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

// compareRunners orders candidates. The criteria are, in this order: the level; the
// nearer group first; runners that can get installs first; the older runner first. IDs
// sort by creation time, so a new runner takes no installs from a working runner.
func compareRunners(in *Install, a, b *Runner) int {
	return cmp.Or(
		cmp.Compare(a.level(in), b.level(in)),
		cmp.Compare(a.unnamed(in), b.unnamed(in)),
		-cmp.Compare(len(a.Group), len(b.Group)), // both groups hold the install, so the longer path is nearer
		cmp.Compare(a.idle(), b.idle()),
		cmp.Compare(a.ID, b.ID),
	)
}

// unnamed returns 0 for the runner that the install names, 1 for others.
func (r *Runner) unnamed(in *Install) int {
	if in.Names != "" && r.ID == in.Names {
		return 0
	}
	return 1
}

// available reports whether the runner can get installs. A paused runner can get
// installs, because a pause is short and bindings last long.
func (r *Runner) available() bool { return r.Mode.TakesJobs() || r.Mode == fairlead.ModePaused }

// idle returns 0 for a runner that can get installs, 1 for others.
func (r *Runner) idle() int {
	if r.available() {
		return 0
	}
	return 1
}

// Decide returns the runner that the install would be bound to now. It ignores an
// existing binding. The parameters may hold rules and runners of all orgs: Decide
// ignores rules and runners of other orgs. Its time is linear in their number.
//
// If a runner causes the error, the decision names this runner. The error is of
// fairlead.KindConflict with one of these codes:
//   - "no-runner": no rule matches, and no runner serves the install's group;
//   - "runner-unavailable": the runner, and all other runners of the same rank, are
//     disabled or draining;
//   - "broken-rule": the most specific rule names a runner that was deleted or must
//     not serve the install;
//   - "named-runner-gone": the runner that the install names was deleted or must not
//     serve it.
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
			Message: fmt.Sprintf("the runner that install %s names was deleted or does not serve group %s", in.Name, in.Group),
			Hint:    "{install.set-runner} sets another runner. {install.unset-runner} lets the rules choose.",
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
		Message: fmt.Sprintf("no runner serves install %s: no rule matches it, neither group %s nor a group above has a runner, and there is no shared runner", in.Name, in.Group),
		Hint:    "Create a runner for it, or a rule that matches it. {runner.explain} shows the candidates.",
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

// byRule applies the rule. The rule decides even if its runner cannot serve the
// install. Otherwise the next rule could send the install to a runner that the operator
// wanted to exclude.
func byRule(in Install, rule *Rule, runners []Runner) (Decision, error) {
	r := named(rule, &in, runners)
	if r == nil {
		return Decision{Level: LevelRule, Rule: rule.ID}, &fairlead.Error{
			Kind: fairlead.KindConflict, Code: fairlead.CodeBrokenRule,
			Message: fmt.Sprintf("rule %s (%s) decides where install %s runs, but its runner was deleted or does not serve group %s", rule.ID, rule.Match, in.Name, in.Group),
			Hint:    "Delete the rule, or replace it by one with the same match and another runner.",
		}
	}
	return r.decision(LevelRule, rule.ID).orUnavailable(in, r)
}

// named returns the rule's runner, or nil if this runner was deleted or may not serve
// the install.
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
		Message: fmt.Sprintf("runner %s would serve install %s, but it is %s", r.Name, in.Name, r.Mode),
		Hint:    "Enable it ({runner.enable}), or name another runner in a rule. No other runner takes over automatically.",
		Args:    fairlead.Args{Runner: r.Name},
	}
}
