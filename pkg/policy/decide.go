package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	version "github.com/hashicorp/go-version"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/sessionpolicy"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Decide evaluates the policy. A denial precedes a need for approval, and the first rule in the order of the fields is named.
func (p *Policy) Decide(q Request) Decision {
	for _, judge := range []func(Request) Decision{p.operation, p.kind, p.storage, p.environment, p.source, p.module, p.window, p.ceilings, p.images, p.deny, p.unmapped} {
		if d := judge(q); d.Effect == Deny {
			return d
		}
	}
	return p.approval(q)
}

var allowed = Decision{Effect: Allow}

func (p *Policy) denied(rule, format string, args ...any) Decision {
	line := p.lines[rule]
	for parent := rule; line == 0 && strings.Contains(parent, "."); {
		parent = parent[:strings.LastIndexByte(parent, '.')]
		line = p.lines[parent]
	}
	return Decision{Effect: Deny, Rule: rule, Line: line, Reason: fmt.Sprintf(format, args...)}
}

func (p *Policy) operation(q Request) Decision {
	if p.given["operations"] && !slices.Contains(p.Operations, string(q.Operation)) {
		return p.denied("operations", "it does not list the operation %s", quoted(string(q.Operation)))
	}
	return allowed
}

func (p *Policy) kind(q Request) Decision {
	if p.given["types"] && !slices.Contains(p.Types, q.Type) {
		return p.denied("types", "it does not list the type %s", quoted(q.Type))
	}
	return allowed
}

func (p *Policy) storage(q Request) Decision {
	if q.Storage == "http" && !p.Sends(States) {
		return p.denied("telemetry", "states and saved plans of this runner are stored in the control plane, and it does not list %s", States)
	}
	if q.Storage != "" && p.given["storages"] && !slices.ContainsFunc(p.Storages, func(pattern string) bool { return matchesPath(pattern, q.Storage) }) {
		return p.denied("storages", "it does not list %s, where states and saved plans are stored", quoted(q.Storage))
	}
	return allowed
}

// environment judges the variables that the vendor sets. A variable such as GIT_SSH_COMMAND runs a program, so a policy without
// the field permits none.
func (p *Policy) environment(q Request) Decision {
	for _, name := range q.Variables {
		if !slices.ContainsFunc(p.Environment, func(pattern string) bool { return matches(pattern, name) }) {
			return p.denied("environment", "it does not list the environment variable %s, which the vendor sets", quoted(name))
		}
	}
	return allowed
}

func (p *Policy) source(q Request) Decision {
	s := q.Source
	switch {
	case s == nil:
	case p.given["sources"] && s.Origin == "":
		return p.denied("sources", "it is not known where the code of component %s comes from", quoted(q.Component))
	case p.given["sources"] && !p.lists(s.Origin):
		return p.denied("sources", "it does not list %s, from which the code of component %s comes", quoted(s.Origin), quoted(q.Component))
	case p.given["signers"] && !slices.Contains(p.Signers, s.SignedBy):
		return p.denied("signers", "no key that it lists signed the provenance of component %s", quoted(q.Component))
	case p.given["plugins"] && s.Runs && !slices.Contains(p.Plugins, s.Artifact):
		return p.denied("plugins", "it does not list the artifact %s, whose program component %s starts", s.Artifact, quoted(q.Component))
	}
	return allowed
}

func (p *Policy) lists(source string) bool {
	return slices.ContainsFunc(p.Sources, func(pattern string) bool { return matchesPath(pattern, source) })
}

func (p *Policy) module(q Request) Decision {
	m := q.Module
	if m == nil {
		return allowed
	}
	if m.Unreadable != "" {
		for _, field := range []string{"sources", "providers", "provisioners"} {
			if p.given[field] {
				return p.denied(field, "%s", m.Unreadable)
			}
		}
	}
	for _, s := range m.Sources {
		if p.given["sources"] && !p.lists(s) {
			return p.denied("sources", "it does not list %s, from which a module comes", quoted(s))
		}
	}
	for _, g := range m.Programs {
		if p.given["provisioners"] && !slices.Contains(p.Provisioners, g.Kind) {
			return p.denied("provisioners", "it does not list %s, which %s has", quoted(g.Kind), g.At)
		}
	}
	for _, r := range m.Providers {
		if p.given["providers"] && !p.permits(r) {
			return p.denied("providers", "it does not list the provider %s in version %s", quoted(r.Address), quoted(r.Version))
		}
	}
	return allowed
}

// permits reports whether an entry of providers permits the provider. Versions before a release meet only a constraint that
// names one, as in the tools.
func (p *Policy) permits(r Provider) bool {
	for pattern, text := range p.Providers {
		if !matchesPath(pattern, r.Address) {
			continue
		}
		c, err := constraint(text)
		if err != nil {
			continue
		}
		if c == nil {
			return true
		}
		if v, err := version.NewVersion(r.Version); err == nil && c.Check(v) {
			return true
		}
	}
	return false
}

func (p *Policy) window(q Request) Decision {
	if !p.given["windows"] || !q.Operation.Mutates() {
		return allowed
	}
	for _, w := range p.Windows {
		if w.open(q.Now, p.zones[w.Name]) {
			return allowed
		}
	}
	return p.denied("windows", "none of its windows is open at %s", q.Now.UTC().Format("Mon 15:04 MST"))
}

// open reports whether the window is open. The end is outside.
func (w Window) open(now time.Time, in *time.Location) bool {
	if in == nil {
		return false
	}
	local := now.In(in)
	at, from, to := local.Hour()*60+local.Minute(), minutes(w.From), minutes(w.To)
	begins := func(day time.Weekday) bool {
		return len(w.Days) == 0 || slices.Contains(w.Days, days[day])
	}
	today := local.Weekday()
	if from < to {
		return begins(today) && from <= at && at < to
	}
	return begins(today) && from <= at || begins((today+6)%7) && at < to
}

func minutes(clock string) int {
	hours, rest, _ := strings.Cut(clock, ":")
	h, _ := strconv.Atoi(hours) // the pattern of the field
	m, _ := strconv.Atoi(rest)
	return 60*h + m
}

// Counts are the numbers of changes by kind.
type Counts struct {
	Creates  int `json:"creates,omitempty"`
	Updates  int `json:"updates,omitempty"`
	Destroys int `json:"destroys,omitempty"`
	Imports  int `json:"imports,omitempty"`
	Forgets  int `json:"forgets,omitempty"`
	Moves    int `json:"moves,omitempty"`
	Runs     int `json:"runs,omitempty"`
}

// Count counts the changes of a plan. A replacement creates and destroys. Changes that are not known, and actions that this
// version does not know, are destroys.
func (p Plan) Count() Counts {
	c := Counts{Destroys: p.Omitted}
	for _, change := range p.Changes {
		switch change.Action {
		case changeset.Create:
			c.Creates++
		case changeset.Update, changeset.Recover:
			c.Updates++
		case changeset.Replace:
			c.Creates++
			c.Destroys++
		case changeset.Import:
			c.Imports++
			if len(change.Changed) > 0 || change.Omitted {
				c.Updates++
			}
		case changeset.Forget:
			c.Forgets++
		case changeset.Move:
			c.Moves++
		case changeset.Run:
			c.Runs++
		case changeset.Read:
		default:
			c.Destroys++
		}
		if change.Previous != "" && change.Action != changeset.Move {
			c.Moves++
		}
	}
	return c
}

// Plus returns the sum.
func (c Counts) Plus(o Counts) Counts {
	return Counts{c.Creates + o.Creates, c.Updates + o.Updates, c.Destroys + o.Destroys, c.Imports + o.Imports, c.Forgets + o.Forgets, c.Moves + o.Moves, c.Runs + o.Runs}
}

func (p *Policy) ceilings(q Request) Decision {
	if q.Plan == nil || p.Ceilings == nil {
		return allowed
	}
	own := q.Plan.Count()
	if d := p.within("ceilings.component", "the plan", p.Ceilings.Component, own); d.Effect == Deny {
		return d
	}
	return p.within("ceilings.deployment", "the deployment", p.Ceilings.Deployment, own.Plus(q.Plan.Others))
}

func (p *Policy) within(rule, what string, limits *Limits, c Counts) Decision {
	if limits == nil {
		return allowed
	}
	for _, of := range []struct {
		name  string
		limit *int
		is    int
	}{
		{"creates", limits.Creates, c.Creates}, {"updates", limits.Updates, c.Updates}, {"destroys", limits.Destroys, c.Destroys},
		{"imports", limits.Imports, c.Imports}, {"forgets", limits.Forgets, c.Forgets}, {"moves", limits.Moves, c.Moves}, {"runs", limits.Runs, c.Runs},
	} {
		if of.limit != nil && of.is > *of.limit {
			return p.denied(rule+"."+of.name, "%s has %d %s, and it permits %d", what, of.is, of.name, *of.limit)
		}
	}
	return allowed
}

func (p *Policy) deny(q Request) Decision {
	if q.Plan == nil {
		return allowed
	}
	for _, rule := range p.Deny {
		if q.Plan.Omitted > 0 {
			return p.denied("deny."+rule.Name, "%d changes of the plan are not known, so it cannot be decided", q.Plan.Omitted)
		}
		for _, c := range q.Plan.Changes {
			if selected(rule.Types, c.Kind) && (selected(rule.Addresses, c.Address) || c.Previous != "" && selected(rule.Addresses, c.Previous)) && acts(rule.Actions, c.Action) {
				if why, meets := rule.meets(c); meets {
					return p.denied("deny."+rule.Name, "%s of %s%s", c.Action, quoted(c.Address), why)
				}
			}
		}
	}
	return allowed
}

// selected reports whether a pattern matches, or there is none.
func selected(patterns []string, text string) bool {
	return patterns == nil || slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, text) })
}

func acts(names []string, a changeset.Action) bool {
	return names == nil || !a.Known() || slices.Contains(names, string(a)) ||
		a == changeset.Replace && slices.Contains(names, string(changeset.Delete))
}

// meets reports whether all conditions of the rule apply to the change, and why, for a message after the address.
func (rule Rule) meets(c changeset.Change) (why string, meets bool) {
	removed := c.Action == changeset.Delete || c.Action == changeset.Forget
	values := c.After
	if removed {
		values = c.Before
	}
	for _, pointer := range slices.Sorted(maps.Keys(rule.When)) {
		condition := rule.When[pointer]
		if c.Omitted {
			why += fmt.Sprintf(": the value of %s is too large to be read", pointer)
			continue
		}
		f := finder{condition: condition, whole: c.Action == changeset.Create || removed, hidden: c.Sensitive}
		f.unclear = values == nil && sets(c)
		f.find(values, strings.Split(pointer, "/")[1:], "")
		switch {
		case f.met:
			why += ": its " + pointer
		case f.unclear:
			why += fmt.Sprintf(": the value of %s is hidden or not known before the apply", pointer)
		default:
			return "", false
		}
	}
	return why, true
}

// finder finds the values at a pointer.
type finder struct {
	condition    Condition
	whole        bool     // the object has no other attributes than these
	hidden       []string // pointers of values that are hidden, or have a hidden part
	met, unclear bool
}

// The two directions between a key and its part of a JSON pointer (RFC 6901). A replacer builds its table at its first use, which takes
// longer than a decision.
var (
	escaped   = strings.NewReplacer("~", "~0", "/", "~1")
	unescaped = strings.NewReplacer("~1", "/", "~0", "~")
)

func (f *finder) find(value any, path []string, at string) {
	if text, ok := value.(string); ok && (text == changeset.Unknown || text == changeset.Sensitive) || slices.Contains(f.hidden, at) {
		f.unclear = true
		return
	}
	if len(path) == 0 {
		f.judge(value)
		return
	}
	each := path[0] == "*"
	name := unescaped.Replace(path[0])
	switch value := value.(type) {
	case map[string]any:
		for key, e := range value {
			if each || key == name {
				f.find(e, path[1:], at+"/"+escaped.Replace(key))
			}
		}
		if _, ok := value[name]; each || ok {
			return
		}
	case []any:
		for i, e := range value {
			if key := strconv.Itoa(i); each || key == name {
				f.find(e, path[1:], at+"/"+key)
			}
		}
		if i, err := strconv.Atoi(name); each || err == nil && i >= 0 && i < len(value) {
			return
		}
	}
	if f.whole && !slices.Contains(path, "*") {
		f.judge(nil)
	}
}

// judge judges a value that is known.
func (f *finder) judge(value any) {
	if f.condition.Is != nil {
		f.met = f.met || among(f.condition.Is, value)
		return
	}
	f.met = f.met || !among(f.condition.IsNot, value)
}

func among(list []any, value any) bool {
	text, ok := scalar(value)
	return ok && slices.ContainsFunc(list, func(of any) bool {
		pattern, ok := scalar(of)
		if _, isText := of.(string); !isText {
			return ok && sameScalar(pattern, text)
		}
		return ok && matches(pattern, text)
	})
}

// sameScalar compares numbers by value: 1 and 1.0 are the same.
func sameScalar(a, b string) bool {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return a == b || err1 == nil && err2 == nil && x == y
}

// scalar returns a text, a number or a flag as text.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return v.String(), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	}
	return "", false
}

// unmapped judges a plan with types of resources for which an apply would have the whole role.
func (p *Policy) unmapped(q Request) Decision {
	if q.Plan == nil || !p.Narrows() {
		return allowed
	}
	if q.Plan.Omitted > 0 {
		return p.denied("whole_role", "%d changes of the plan are not known", q.Plan.Omitted)
	}
	return p.WholeRole(sessionpolicy.Unmapped(sessionpolicy.Kinds(q.Plan.Changes)))
}

// WholeRole judges that an apply would have the whole role of its operation because of what causes names: types of resources, LocalExec,
// TooManyServices. Without a cause it allows.
func (p *Policy) WholeRole(causes []string) Decision {
	for _, cause := range causes {
		if p.Narrows() && !slices.ContainsFunc(p.WholeRoles, func(pattern string) bool { return matches(pattern, cause) }) {
			return p.denied("whole_role", "it does not list %s, for which an apply would have the whole role of its operation", quoted(cause))
		}
	}
	return allowed
}

func (p *Policy) approval(q Request) Decision {
	if q.Plan == nil {
		return allowed
	}
	mutates := q.Operation.Mutation()
	for _, a := range p.Approvals {
		if a.Operations != nil && !slices.Contains(a.Operations, string(mutates)) {
			continue
		}
		needs := func(format string, args ...any) Decision {
			d := p.denied("approvals."+a.Name, format, args...)
			d.Effect = NeedsApproval
			return d
		}
		if q.Plan.Omitted > 0 {
			return needs("%d changes of the plan are not known", q.Plan.Omitted)
		}
		for _, c := range q.Plan.Changes {
			if selected(a.Types, c.Kind) && acts(a.Actions, c.Action) {
				return needs("%s of %s", c.Action, quoted(c.Address))
			}
		}
	}
	return allowed
}

// matches reports whether the pattern is the text. * stands for any characters.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}

// matchesPath is matches for paths: * stands for any characters except /, and ** for any characters. Its time is linear in the
// length of the text, which the vendor chooses.
func matchesPath(pattern, text string) bool {
	const any, segment = -1, -2
	var tokens []int
	for i := 0; i < len(pattern); i++ {
		switch {
		case strings.HasPrefix(pattern[i:], "**"):
			tokens = append(tokens, any)
			i++
		case pattern[i] == '*':
			tokens = append(tokens, segment)
		default:
			tokens = append(tokens, int(pattern[i]))
		}
	}
	at := make([]bool, len(tokens)+1) // the tokens at which the rest of the pattern can begin
	skip := func() {
		for i, t := range tokens {
			at[i+1] = at[i+1] || at[i] && t < 0
		}
	}
	at[0] = true
	skip()
	for i := range len(text) {
		next := make([]bool, len(at))
		for j, t := range tokens {
			switch {
			case !at[j]:
			case t == any || t == segment && text[i] != '/':
				next[j] = true
			case t == int(text[i]):
				next[j+1] = true
			}
		}
		at = next
		skip()
	}
	return at[len(tokens)]
}

func quoted(text string) string { return yamlnode.Quote(text) }
