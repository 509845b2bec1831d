package runners

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// The identifier of a rule is prefixRule and the first ruleDigits digits of the rule's
// key. So the same match always has the same identifier.
const (
	prefixRule = "rul_"
	ruleDigits = 26 // of the key's 64 digits; 26 digits are 104 bits
)

func ruleID(r placement.Rule) placement.RuleID {
	return placement.RuleID(prefixRule + r.Key()[:ruleDigits])
}

// NewRunnerRule is a request to create a rule.
type NewRunnerRule struct {
	Group  string            `json:"group,omitempty"`
	App    string            `json:"app,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Runner string            `json:"runner"` // name
}

// RunnerRule is a rule with the name of its runner.
type RunnerRule struct {
	fairlead.Actors
	placement.Rule
	RunnerName string
	Created    time.Time
}

func runnerRuleOf(r store.RunnerRule) RunnerRule {
	return RunnerRule{Actors: r.Actors, Rule: r.Rule, RunnerName: r.RunnerName, Created: r.Created}
}

// CreateRunnerRule creates a rule. Each match has at most one rule, also with
// concurrent requests. The reason is that the rule's key is computed from its match, and
// the commit requires that the key is free.
func (f *Fleet) CreateRunnerRule(ctx context.Context, org fairlead.OrgID, in NewRunnerRule, key string) (RunnerRule, error) {
	rule := placement.Rule{Org: org, Match: placement.Match{Group: in.Group, App: in.App, Labels: placement.LabelsOf(in.Labels)}}
	if err := rule.Match.Check(); err != nil {
		return RunnerRule{}, err
	}
	rule.ID = ruleID(rule)
	made := f.IDs(kernel.PrefixCommit)
	err := f.Transact(ctx, "create rule for "+rule.Match.String(), func(tx *kernel.Tx) error {
		old, found := f.Store.RunnerRule(ctx, org, rule.Key())
		if again, err := tx.Seen(kernel.Once{Org: org, Route: "create-runner-rule", Key: key, Body: in}, string(rule.ID)); err != nil || again != "" {
			return err
		}
		switch {
		case found == nil && old.V.Made == made:
			return nil // our own earlier commit, whose outcome was unclear
		case found == nil:
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRuleExists,
				Message: fmt.Sprintf("rule %s already has the same match (%s), and names runner %s", old.V.ID, old.V.Match, old.V.RunnerName),
				Hint:    "Delete it first: {rule.delete}.",
				Args:    fairlead.Args{Rule: string(old.V.ID)}}
		case fairlead.KindOf(found) != fairlead.KindNotFound:
			return found
		}
		r, err := FindRunner(tx, org, in.Runner)
		if err != nil {
			return err
		}
		if r.V.Leaving {
			return Leaving(r.V)
		}
		rule.Runner = r.V.ID
		if err := placement.CheckRule(rule, Placeable(r.V)); err != nil {
			return err
		}
		tx.CheckRunner(r)
		tx.PutRunnerRule(store.Stored[store.RunnerRule]{V: store.RunnerRule{Rule: rule, RunnerName: r.V.Name, Made: made, Created: tx.Now}})
		return nil
	})
	if err != nil {
		return RunnerRule{}, err
	}
	r, err := f.Store.RunnerRule(ctx, org, rule.Key())
	return runnerRuleOf(r.V), err
}

// Leaving returns the error for a runner that is in deletion.
func Leaving(r store.Runner) error {
	return fairlead.Conflict(fairlead.CodeRunnerInUse, "runner %s is being deleted", r.Name)
}

// RunnerRules lists rules in a stable order.
func (f *Fleet) RunnerRules(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]RunnerRule, string, error) {
	p, err := f.Store.RunnerRules(ctx, org, q)
	return kernel.List(p, err, runnerRuleOf)
}

// RunnerRule returns a rule by its identifier.
func (f *Fleet) RunnerRule(ctx context.Context, org fairlead.OrgID, id string) (RunnerRule, error) {
	digits, err := digitsOf(id)
	if err != nil {
		return RunnerRule{}, err
	}
	r, err := f.Store.RunnerRuleByPrefix(ctx, org, digits)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		err = RuleNotFound(id)
	}
	return runnerRuleOf(r.V), err
}

// digitsOf returns the part of a rule's identifier that begins the rule's key.
func digitsOf(id string) (string, error) {
	digits, ok := strings.CutPrefix(id, prefixRule)
	if !ok || len(digits) != ruleDigits || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", RuleNotFound(id)
	}
	return digits, nil
}

// DeleteRunnerRule deletes a rule. Installs that the rule placed stay bound to their
// runner.
func (f *Fleet) DeleteRunnerRule(ctx context.Context, org fairlead.OrgID, id string) error {
	digits, err := digitsOf(id)
	if err != nil {
		return err
	}
	return f.Transact(ctx, "delete rule "+id, func(tx *kernel.Tx) error {
		r, err := f.Store.RunnerRuleByPrefix(ctx, org, digits)
		switch {
		case !tx.Again && fairlead.KindOf(err) == fairlead.KindNotFound:
			return RuleNotFound(id)
		case err != nil:
			return tx.Deleted(err)
		}
		tx.DeleteRunnerRule(r)
		return nil
	})
}

// RuleNotFound returns the error of a rule that does not exist.
func RuleNotFound(id string) error {
	e := fairlead.NotFound(fairlead.CodeRuleNotFound, fairlead.Clip(id, 100))
	e.Hint = "{rule.list} shows what exists."
	return e
}
