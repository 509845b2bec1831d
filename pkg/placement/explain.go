package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Candidate is a rule or a runner that was considered.
type Candidate struct {
	Level Level  `json:"level"`
	Rule  RuleID `json:"rule,omitempty"`
	// Match is the rule's match as text.
	Match string `json:"match,omitempty"`
	// Runner is empty for a rule whose runner was deleted or must not serve the
	// install. Otherwise a person could learn of another tenant's runners.
	Runner fairlead.RunnerID `json:"runner,omitempty"`
	Name   string            `json:"name,omitempty"` // name of the runner
	Won    bool              `json:"won"`
	Why    string            `json:"why"`
}

// Explanation is a decision with all its candidates.
type Explanation struct {
	Install Install
	Decision
	Refused error // Decide's error; nil if there is a runner
	// Candidates are the runners that may serve the install and the rules of its org,
	// in order of precedence. Rules that do not match are after rules that match. At
	// most one candidate has won.
	Candidates []Candidate
}

// Explain returns the decision of Decide with its candidates and reasons. If Decide
// refuses, no candidate has won, and the reason of the deciding candidate explains why
// it cannot serve the install. The candidates do not include rules and runners of other
// orgs, runners of groups that do not hold the install, and runners that serve only
// another install.
func Explain(in Install, rules []Rule, runners []Runner) Explanation {
	e := Explanation{Install: in}
	e.Decision, e.Refused = Decide(in, rules, runners)

	var able []*Runner
	for i := range runners {
		if runners[i].serves(&in) {
			able = append(able, &runners[i])
		}
	}
	slices.SortFunc(able, func(a, b *Runner) int { return compareRunners(&in, a, b) })
	var matching, others []*Rule
	for i := range rules {
		switch r := &rules[i]; {
		case r.Org != in.Org:
		case r.Match.matches(&in):
			matching = append(matching, r)
		default:
			others = append(others, r)
		}
	}
	bySpecificity := func(a, b *Rule) int { return Compare(*a, *b) }
	slices.SortFunc(matching, bySpecificity)
	slices.SortFunc(others, bySpecificity)

	own := slices.IndexFunc(able, func(r *Runner) bool { return r.level(&in) != LevelOwn })
	if own < 0 {
		own = len(able)
	}
	for _, r := range able[:own] {
		e.Candidates = append(e.Candidates, e.runner(r, able))
	}
	for _, r := range slices.Concat(matching, others) {
		e.Candidates = append(e.Candidates, e.rule(r, matching, runners))
	}
	for _, r := range able[own:] {
		e.Candidates = append(e.Candidates, e.runner(r, able))
	}
	return e
}

// runner returns the entry of r in the list of candidates. No rule names r: r can serve
// the install because of its level.
func (e *Explanation) runner(r *Runner, able []*Runner) Candidate {
	level := r.level(&e.Install)
	c := Candidate{Level: level, Runner: r.ID, Name: r.Name}
	switch {
	case e.Rule == "" && e.Runner == r.ID:
		c.Won, c.Why = e.Refused == nil, e.won()
		if e.Level == LevelOwn && r.ID == e.Install.Names {
			c.Why = "the install names it"
		}
		if !c.Won {
			c.Why = e.blocked(r)
		}
	case e.Level != level:
		c.Why = e.Level.beats() + " comes first"
	default: // of the same level as the runner that decided
		i := slices.IndexFunc(able, func(w *Runner) bool { return w.ID == e.Runner })
		if i < 0 { // no runner decided: the runner that the install names was deleted
			c.Why = "the install names another runner"
			break
		}
		winner := able[i]
		switch {
		case winner.unnamed(&e.Install) == 0:
			c.Why = "the install names another runner"
		case len(winner.Group) != len(r.Group):
			c.Why = fmt.Sprintf("group %s is nearer than %s", winner.Group, r.Group)
		case winner.idle() != r.idle():
			c.Why = fmt.Sprintf("it is %s, and runner %s of the same rank is not", r.Mode, winner.Name)
		default:
			c.Why = fmt.Sprintf("runner %s of the same rank is older", winner.Name)
		}
	}
	return c
}

// rule returns the candidate for a rule.
func (e *Explanation) rule(rule *Rule, matching []*Rule, runners []Runner) Candidate {
	c := Candidate{Level: LevelRule, Rule: rule.ID, Match: rule.Match.String()}
	r := named(rule, &e.Install, runners)
	if r != nil {
		c.Runner, c.Name = r.ID, r.Name
	}
	if why := rule.Match.mismatch(&e.Install); why != "" {
		c.Why = "does not match: " + why
		return c
	}
	switch {
	case e.Level == LevelOwn:
		c.Why = e.Level.beats() + " comes first"
	case rule != matching[0]:
		_, why := compare(matching[0], rule)
		c.Why = fmt.Sprintf("%s than rule %s", why, matching[0].ID)
		if before, after, ok := strings.Cut(why, ": "); ok {
			c.Why = fmt.Sprintf("%s than rule %s: %s", before, matching[0].ID, after)
		}
	case r == nil:
		c.Why = "it decides, but its runner was deleted or does not serve the install's group: the deployment is refused"
	case e.Refused != nil:
		c.Why = e.blocked(r)
	default:
		c.Won, c.Why = true, e.won()
	}
	return c
}

func (e *Explanation) blocked(r *Runner) string {
	return fmt.Sprintf("it decides, but its runner is %s: the deployment is refused, because no other runner takes over automatically", r.Mode)
}

// won returns the reason why the chosen candidate has won.
func (e *Explanation) won() string {
	switch e.Level {
	case LevelOwn:
		return "it is the install's own runner"
	case LevelRule:
		return "it is the most specific rule that matches"
	case LevelGroup:
		return "it is in the install's group, and nothing takes precedence"
	case LevelAncestor:
		return "it is in the nearest group above that has a runner, and nothing takes precedence"
	}
	return "it is shared, and nothing takes precedence"
}

// beats returns text for the reasons of candidates that lost: it names what decided at
// level l.
func (l Level) beats() string {
	switch l {
	case LevelOwn:
		return "the install's own runner"
	case LevelRule:
		return "a rule that matches"
	case LevelGroup:
		return "a runner of the install's group"
	}
	return "a runner of a group above"
}
