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

// below is the suffix of a group pattern that also covers the groups below.
const below = "/**"

// Match holds the conditions of a rule on an install. All conditions must hold. An
// empty field matches anything, so the zero Match matches every install of the org.
type Match struct {
	// Group is a path, which matches only the installs of that group ("/" is the root
	// group), or a path and "/**", which matches the installs of that group and of all
	// groups below it.
	Group string `json:"group,omitempty"`
	// App is the name of an app.
	App string `json:"app,omitempty"`
	// Labels are the labels that the install must have. In a value, * matches any
	// characters, or none: "*" requires only that the install has the label.
	Labels Labels `json:"labels,omitempty"`
}

// GroupPattern is the regular expression of a Match's Group.
const GroupPattern = RootPattern + `|^` + pathForm + `(/\*\*)?$`

// Within returns the group that contains every install that m can match; the root group if m names no group. m must be valid.
func (m Match) Within() Path { return Path(strings.Trim(strings.TrimSuffix(m.Group, below), "/")) }

// Check returns an error of fairlead.KindInvalid if m is invalid or not in its
// canonical spelling. Two valid matches are equal exactly if their keys are equal.
func (m Match) Check() error {
	invalid := func(hint, format string, args ...any) error {
		return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidMatch, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch group := strings.TrimSuffix(m.Group, below); {
	case m.Group == "**" || m.Group == below:
		return invalid("Leave the group out: the rule then matches in every group.", "the group %s matches every group", shown(m.Group))
	case m.Group == "", m.Group == "/":
	default:
		if _, err := ParsePath(group); err != nil || strings.HasPrefix(group, "/") {
			return invalid("Write a group's path, such as customers/acme. Add /** to also cover the groups below.",
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

// matches reports whether m matches the install. It is faster than mismatch, because
// it makes no text.
func (m *Match) matches(in *Install) bool {
	if m.App != "" && m.App != in.App || !m.coversGroup(in.Group) {
		return false
	}
	missed, _, _ := m.Labels.mismatch(in.Labels)
	return missed < 0
}

// mismatch returns, as text, the first condition of m that does not hold for the
// install. It returns "" if all conditions hold.
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

// base returns the deepest group that holds all installs that m can match.
func (m *Match) base() Path {
	return Path(strings.TrimSuffix(strings.TrimSuffix(m.Group, below), "/"))
}

// String returns the match as text for people, such as
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

// canonical returns a unique text of the match. Each part has its length as prefix, so
// that two different matches never have the same text.
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

// weight is the specificity of a match. Two weights are compared field by field, in
// the order of the fields. The first field that differs decides.
type weight struct {
	depth    int // depth of the group: 1 for the root group, 0 without a group
	exact    int // 1 if the match covers only the group, not the groups below
	app      int // 1 if the match names an app
	labels   int // number of labels
	values   int // number of labels whose value has no *
	literals int // characters other than * in the values of the other labels
	stars    int // minus the number of *, because a match with fewer * is more specific
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

// compare returns a negative number if w is more specific than v, and a positive one
// if it is less specific. why is the reason, as a text about the less specific match.
func (w weight) compare(v weight) (int, string) {
	shallow := "its group is not as deep"
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
		{cmp.Compare(v.literals, w.literals), "its patterns have fewer characters besides *"},
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

// Key returns 64 hexadecimal digits. Two rules have the same key exactly if they have
// the same org and the same match. A rule is stored under its key, but only if the key
// does not exist. So two rules never contradict each other, even if they are created
// at the same moment.
func (r Rule) Key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s,%s", len(r.Org), r.Org, r.Match.canonical()))
	return hex.EncodeToString(sum[:])
}

// Compare orders rules by specificity. The result is negative if a wins over b for an
// install that matches a and b. The order is total: a rule is equal only to itself. The
// first difference decides:
//
//  1. the deeper group wins; any group wins over none
//  2. a group without the groups below wins over a group with the groups below
//  3. a rule that names an app wins over a rule without an app
//  4. more labels win over fewer
//  5. more labels with an exact value win over fewer
//  6. in the other values, more characters besides * win over fewer
//  7. fewer * win over more
//  8. the alphabet decides: group, app, labels, org, ID. Two rules differ only here if neither matches a subset of
//     the other's installs
//
// A rule that matches a subset of another rule's installs always wins over it.
func Compare(a, b Rule) int {
	order, _ := compare(&a, &b)
	return order
}

func compare(a, b *Rule) (int, string) {
	if order, why := a.Match.weight().compare(b.Match.weight()); order != 0 {
		return order, "less specific: " + why
	}
	return alphabet(a, b), "equally specific, but later in the alphabet"
}

// alphabet orders rules of equal specificity.
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

// CheckRule returns an error if the rule cannot be created: its match is not valid, or
// its runner may not serve all installs that it matches. runner must be the runner
// that the rule names. The error is of fairlead.KindInvalid, or of
// fairlead.KindNotFound if the runner belongs to another tenant.
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
		return fairlead.NotFound(fairlead.CodeRunnerNotFound, string(r.Runner)) // do not reveal another tenant's runner
	case runner.Scope == Own:
		return refuse("An install's own runner needs no rule.", "runner %s serves only its own install", runner.Name)
	case runner.Scope == Group && !runner.Group.Contains(r.Match.base()):
		return refuse(fmt.Sprintf("Let the rule match the group %s.", string(runner.Group)+below),
			"runner %s serves only group %s and the groups below, but the rule matches installs outside of it", runner.Name, runner.Group)
	}
	return nil
}
