package placement

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// below is the end of a group pattern that also covers what is below the group.
const below = "/**"

// Match is what a rule asks of an install. Everything that it says must hold;
// what it leaves out matches anything, so the zero Match matches every install
// of the org.
type Match struct {
	// Group is a path, which matches the installs of that group alone ("/" is
	// the root group), or a path and "/**", which matches the installs of that
	// group and of all groups below it.
	Group string `json:"group,omitempty"`
	// App is the name of an app.
	App string `json:"app,omitempty"`
	// Labels are what the install must have. In a value, * stands for any run of
	// characters, also none: "*" asks only that the install has the label.
	Labels Labels `json:"labels,omitempty"`
}

// GroupPattern is the regular expression of a Match's Group.
const GroupPattern = RootPattern + `|^` + pathForm + `(/\*\*)?$`

// Check reports why no install could be matched with m, or why m has another
// spelling. The error is of fairlead.KindInvalid. Matches that pass are equal
// exactly if their keys are.
func (m Match) Check() error {
	invalid := func(hint, format string, args ...any) error {
		return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidMatch, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch group := strings.TrimSuffix(m.Group, below); {
	case m.Group == "**" || m.Group == below:
		return invalid("Leave the group out: the rule then matches in every group.", "the group %s says nothing", shown(m.Group))
	case m.Group == "", m.Group == "/":
	default:
		if _, err := ParsePath(group); err != nil || strings.HasPrefix(group, "/") {
			return invalid("Write a group's path, such as customers/acme, and /** behind it to cover the groups below as well.",
				"%s is not a group's path", shown(m.Group))
		}
	}
	if m.App != "" {
		if err := fairlead.CheckName("app", m.App); err != nil {
			return err
		}
	}
	return m.Labels.checkPatterns()
}

// matches is the fast half of mismatch.
func (m *Match) matches(in *Install) bool {
	if m.App != "" && m.App != in.App || !m.coversGroup(in.Group) {
		return false
	}
	missed, _, _ := m.Labels.mismatch(in.Labels)
	return missed < 0
}

// mismatch says what of m does not hold for the install, or "".
func (m *Match) mismatch(in *Install) string {
	if !m.coversGroup(in.Group) {
		return fmt.Sprintf("the install is in group %s", in.Group)
	}
	if m.App != "" && m.App != in.App {
		return fmt.Sprintf("the install is of app %s", in.App)
	}
	switch missed, value, has := m.Labels.mismatch(in.Labels); {
	case missed < 0:
		return ""
	case !has:
		return fmt.Sprintf("the install has no label %s", m.Labels[missed].Key)
	default:
		return fmt.Sprintf("the install's label %s is %q", m.Labels[missed].Key, value)
	}
}

func (m *Match) coversGroup(group Path) bool {
	switch base, deep := strings.CutSuffix(m.Group, below); {
	case m.Group == "":
		return true
	case deep:
		return Path(base).Contains(group)
	case m.Group == "/":
		return group == ""
	default:
		return Path(m.Group) == group
	}
}

// base is the nearest group that holds all that m can match.
func (m *Match) base() Path {
	return Path(strings.TrimSuffix(strings.TrimSuffix(m.Group, below), "/"))
}

// String writes the match as a person reads it, such as
// "group customers/acme/**, app shop, label env=prod".
func (m Match) String() string {
	var parts []string
	if m.Group != "" {
		parts = append(parts, "group "+m.Group)
	}
	if m.App != "" {
		parts = append(parts, "app "+m.App)
	}
	for _, l := range m.Labels {
		parts = append(parts, "label "+l.Key+"="+l.Value)
	}
	if len(parts) == 0 {
		return "every install"
	}
	return strings.Join(parts, ", ")
}

// canonical is the one text of a match. Lengths before the parts keep two
// matches apart whatever characters they hold.
func (m *Match) canonical() string {
	var b strings.Builder
	part := func(s string) { fmt.Fprintf(&b, "%d:%s,", len(s), s) }
	part(m.Group)
	part(m.App)
	for _, l := range m.Labels {
		part(l.Key)
		part(l.Value)
	}
	return b.String()
}

// weight is how specific a match is; each field decides only where those
// before it are equal.
type weight struct {
	depth    int // of the group, the root group being 1 deep here and no group 0
	exact    int // 1 if the group alone is meant, without those below
	app      int // 1 if there is one
	labels   int
	values   int // labels whose value has no *
	literals int // characters of the other values that are no *
	stars    int // negative: fewer are more specific
}

func (m *Match) weight() weight {
	w := weight{labels: len(m.Labels)}
	if m.Group != "" {
		w.depth = m.base().Depth() + 1
		if !strings.HasSuffix(m.Group, below) {
			w.exact = 1
		}
	}
	if m.App != "" {
		w.app = 1
	}
	for _, l := range m.Labels {
		stars := strings.Count(l.Value, "*")
		if stars == 0 {
			w.values++
			continue
		}
		w.literals += len(l.Value) - stars
		w.stars -= stars
	}
	return w
}

// compare returns what decides between two weights, in words about the one
// that loses, and a negative number if a is the more specific.
func (w weight) compare(v weight) (int, string) {
	shallow := "its group is less deep"
	if v.depth == 0 || w.depth == 0 {
		shallow = "it names no group"
	}
	for _, c := range [...]struct {
		order int
		why   string
	}{
		{cmp.Compare(v.depth, w.depth), shallow},
		{cmp.Compare(v.exact, w.exact), "it also covers the groups below"},
		{cmp.Compare(v.app, w.app), "it names no app"},
		{cmp.Compare(v.labels, w.labels), "it names fewer labels"},
		{cmp.Compare(v.values, w.values), "fewer of its labels are exact"},
		{cmp.Compare(v.literals, w.literals), "its patterns say less"},
		{cmp.Compare(v.stars, w.stars), "its patterns have more *"},
	} {
		if c.order != 0 {
			return c.order, c.why
		}
	}
	return 0, ""
}

// RuleID identifies a rule.
type RuleID string

// Rule sends the installs of an org that it matches to a runner.
type Rule struct {
	ID     RuleID            `json:"id"`
	Org    fairlead.OrgID    `json:"org"`
	Match  Match             `json:"match"`
	Runner fairlead.RunnerID `json:"runner"`
}

// Key is the same for two rules exactly if they belong to the same org and
// match on the same: 64 hexadecimal digits. A rule is stored under its key on
// the condition that nothing is there yet, so that no two rules ever
// contradict each other, also when they are made at the same moment.
func (r Rule) Key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s,%s", len(r.Org), r.Org, r.Match.canonical()))
	return hex.EncodeToString(sum[:])
}

// Compare orders rules by how specific they are: it is negative if a wins over
// b for an install that both match. It is a total order; only a rule and
// itself are equal. In this order:
//
//  1. the deeper group wins; any group wins over none
//  2. a group alone wins over a group and those below it
//  3. a rule that names an app wins over one that does not
//  4. more labels win over fewer
//  5. more labels with an exact value win over fewer
//  6. of the other values, more characters beside * win over fewer
//  7. fewer * win over more
//  8. the alphabet decides: group, app, labels, org, identifier. Two rules come this far only if neither matches a
//     part of what the other does
//
// A rule that matches a part of what another matches always wins over it.
func Compare(a, b Rule) int {
	order, _ := compare(&a, &b)
	return order
}

func compare(a, b *Rule) (int, string) {
	if order, why := a.Match.weight().compare(b.Match.weight()); order != 0 {
		return order, "less specific: " + why
	}
	return alphabet(a, b), "as specific, and later in the alphabet"
}

// alphabet orders rules that are as specific as each other.
func alphabet(a, b *Rule) int {
	return cmp.Or(a.Match.alphabet(&b.Match), cmp.Compare(a.Org, b.Org), cmp.Compare(a.ID, b.ID))
}

// alphabet orders matches by their texts: group, app, labels.
func (m *Match) alphabet(n *Match) int {
	return cmp.Or(cmp.Compare(m.Group, n.Group), cmp.Compare(m.App, n.App),
		slices.CompareFunc(m.Labels, n.Labels, func(a, b Label) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
		}))
}

// CheckRule reports why the rule cannot be made: its match is not valid, or
// runner, which is the one that it names, may not serve all that it matches.
// The error is of fairlead.KindInvalid.
func CheckRule(r Rule, runner Runner) error {
	if err := r.Match.Check(); err != nil {
		return err
	}
	refuse := func(hint, format string, args ...any) error {
		return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeRunnerOutOfReach, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch {
	case r.Runner != runner.ID:
		return fmt.Errorf("check rule %s: it names runner %s, not %s", r.ID, r.Runner, runner.ID)
	case runner.Scope == Shared && runner.Org == "":
		return nil
	case runner.Org != r.Org:
		return fairlead.NotFound(fairlead.CodeRunnerNotFound, string(r.Runner)) // of another tenant: it does not exist for this one
	case runner.Scope == Own:
		return refuse("An install's own runner needs no rule.", "runner %s is the own runner of one install and serves no other", runner.Name)
	case runner.Scope == Group && !runner.Group.Contains(r.Match.base()):
		return refuse(fmt.Sprintf("Let the rule match on the group %s.", string(runner.Group)+below),
			"runner %s serves group %s and those below it, and the rule matches installs outside of it", runner.Name, runner.Group)
	}
	return nil
}
