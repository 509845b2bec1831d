package placement_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
)

// The values come from small sets, so that installs, rules and runners often match.
func drawPath(t *rapid.T) placement.Path {
	return placement.Path(strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "ab", "b"}), 0, 3).Draw(t, "path"), "/"))
}

func drawLabels(t *rapid.T, values ...string) placement.Labels {
	return placement.LabelsOf(rapid.MapOfN(rapid.SampledFrom([]string{"k", "l", "m"}), rapid.SampledFrom(values), 0, 3).Draw(t, "labels"))
}

func drawInstall(t *rapid.T) placement.Install {
	return placement.Install{
		ID: "ins_1", Name: "shop-1", Org: "acme", Group: drawPath(t),
		App: rapid.SampledFrom([]string{"shop", "blog"}).Draw(t, "app"), Labels: drawLabels(t, "x", "xy", "y", ""),
	}
}

func drawMatch(t *rapid.T) placement.Match {
	group := ""
	switch path := drawPath(t); rapid.IntRange(0, 2).Draw(t, "group") {
	case 1:
		group = path.String()
	case 2:
		if path != "" {
			group = string(path) + "/**"
		}
	}
	m := placement.Match{
		Group: group, App: rapid.SampledFrom([]string{"", "", "shop", "blog"}).Draw(t, "app"),
		Labels: drawLabels(t, "x", "xy", "*", "x*", "*y", "x*y", "*x*"),
	}
	if err := m.Check(); err != nil {
		t.Fatalf("%v was drawn: %v", m, err)
	}
	return m
}

func drawRules(t *rapid.T) []placement.Rule {
	matches := rapid.SliceOfNDistinct(rapid.Custom(drawMatch), 0, 6, placement.Match.String).Draw(t, "rules")
	var rules []placement.Rule
	for i, m := range matches {
		rules = append(rules, placement.Rule{
			ID: placement.RuleID(fmt.Sprintf("rul_%d", i)), Org: rapid.SampledFrom([]fairlead.OrgID{"acme", "acme", "acme", "other"}).Draw(t, "org"),
			Match: m, Runner: fairlead.RunnerID(fmt.Sprintf("run_%d", rapid.IntRange(0, 6).Draw(t, "runner"))),
		})
	}
	return rules
}

func drawRunners(t *rapid.T) []placement.Runner {
	var runners []placement.Runner
	for i := range rapid.IntRange(0, 6).Draw(t, "runners") {
		r := placement.Runner{
			ID: fairlead.RunnerID(fmt.Sprintf("run_%d", i)), Name: fmt.Sprintf("r%d", i),
			Org:     rapid.SampledFrom([]fairlead.OrgID{"acme", "acme", "acme", "other", ""}).Draw(t, "org"),
			Scope:   rapid.SampledFrom([]placement.Scope{placement.Group, placement.Group, placement.Shared, placement.Own}).Draw(t, "scope"),
			Mode:    rapid.SampledFrom([]fairlead.RunnerMode{fairlead.ModeEnabled, fairlead.ModePaused, fairlead.ModeEnabled, fairlead.ModeDraining, fairlead.ModeDisabled}).Draw(t, "state"),
			Storage: s3(rapid.SampledFrom([]string{"one", "two"}).Draw(t, "bucket")),
		}
		switch r.Scope {
		case placement.Own:
			r.Install = rapid.SampledFrom([]fairlead.InstallID{"ins_1", "ins_2"}).Draw(t, "install")
		case placement.Group:
			r.Group = drawPath(t)
		case placement.Shared:
			if rapid.IntRange(0, 3).Draw(t, "forged") > 0 {
				r.Org = ""
			}
		}
		runners = append(runners, r)
	}
	return runners
}

func shuffled[T any](t *rapid.T, s []T) []T {
	return rapid.Permutation(slices.Clone(s)).Draw(t, "order")
}

func TestSpecificityIsATotalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(id placement.RuleID) placement.Rule {
			return placement.Rule{ID: id, Org: "acme", Match: drawMatch(t)}
		}
		a, b, c := draw("rul_1"), draw("rul_2"), draw("rul_3")
		if placement.Compare(a, a) != 0 || placement.Compare(a, b) == 0 {
			t.Fatalf("%v is equal to another rule, or not to itself", a)
		}
		if (placement.Compare(a, b) < 0) != (placement.Compare(b, a) > 0) {
			t.Fatalf("%v and %v both win", a, b)
		}
		if placement.Compare(a, b) < 0 && placement.Compare(b, c) < 0 && placement.Compare(a, c) > 0 {
			t.Fatalf("not transitive: %v wins over %v, that wins over %v, and that wins over the first", a, b, c)
		}
		// The IDs decide only between rules with the same match.
		a.ID, b.ID = b.ID, a.ID
		if order := placement.Compare(a, b) < 0; a.Key() != b.Key() && order != (placement.Compare(placement.Rule{ID: "rul_1", Org: "acme", Match: a.Match}, b) < 0) {
			t.Fatalf("the IDs of %v and %v decide", a, b)
		}
	})
}

// narrowed returns a match that matches a subset of m's installs.
func narrowed(t *rapid.T, m placement.Match) placement.Match {
	have := m.Labels.Map()
	for range rapid.IntRange(1, 4).Draw(t, "times") {
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			base, deep := strings.CutSuffix(m.Group, "/**")
			switch {
			case m.Group == "":
				m.Group = rapid.SampledFrom([]string{"/", "a", "a/**", "a/b/**"}).Draw(t, "group")
			case deep:
				m.Group = base + rapid.SampledFrom([]string{"", "/a/**", "/a"}).Draw(t, "below")
			}
		case 1:
			if m.App == "" {
				m.App = "shop"
			}
		case 2:
			if _, ok := have["l"]; !ok {
				have["l"] = rapid.SampledFrom([]string{"*", "x*", "x"}).Draw(t, "value")
			}
		case 3:
			for key, value := range m.Labels.Map() {
				have[key] = strings.ReplaceAll(strings.Replace(value, "*", rapid.SampledFrom([]string{"", "x", "x*", "*y", "*x*"}).Draw(t, "piece"), 1), "**", "*")
			}
		}
		m.Labels = placement.LabelsOf(have)
	}
	return m
}

func TestNarrowerRuleWins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide := placement.Rule{ID: "rul_1", Org: "acme", Match: drawMatch(t)}
		narrow := placement.Rule{ID: "rul_2", Org: "acme", Match: narrowed(t, wide.Match)}
		if wide.Key() != narrow.Key() && placement.Compare(narrow, wide) >= 0 {
			t.Fatalf("%q matches a subset of %q but does not win over it", narrow.Match, wide.Match)
		}
	})
}

func TestRuleKeyIdentifiesItsMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := placement.Rule{ID: "rul_1", Org: "acme", Match: drawMatch(t), Runner: "run_1"}
		b := placement.Rule{ID: "rul_2", Org: "acme", Match: drawMatch(t), Runner: "run_2"}
		if same := a.Match.String() == b.Match.String(); same != (a.Key() == b.Key()) {
			t.Fatalf("%q and %q: keys equal: %t", a.Match, b.Match, !same)
		}
		b.Match, b.Org = a.Match, "other"
		if a.Key() == b.Key() {
			t.Fatal("rules of two orgs have the same key")
		}
	})
}

func TestChosenRunnerServesTheInstall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, rules, runners := drawInstall(t), drawRules(t), drawRunners(t)
		d, err := placement.Decide(i, rules, runners)
		if err != nil && fairlead.KindOf(err) != fairlead.KindConflict {
			t.Fatal(err)
		}
		if d.Runner == "" {
			if err == nil {
				t.Fatal("Decide returns neither a runner nor an error")
			}
			return
		}
		r := runners[slices.IndexFunc(runners, func(r placement.Runner) bool { return r.ID == d.Runner })]
		switch {
		case r.Scope == placement.Shared && r.Org == "":
		case r.Org != i.Org:
			t.Fatalf("%v belongs to another tenant", r)
		case r.Scope == placement.Own && r.Install == i.ID:
		case r.Scope == placement.Group && (r.Group == "" || strings.HasPrefix(string(i.Group)+"/", string(r.Group)+"/")):
		default:
			t.Fatalf("%v does not serve group %s", r, i.Group)
		}
		if (r.Mode == fairlead.ModeEnabled || r.Mode == fairlead.ModePaused) != (err == nil) {
			t.Fatalf("chosen runner %v, error %v", r, err)
		}
	})
}

func TestOrderOfListsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, rules, runners := drawInstall(t), drawRules(t), drawRunners(t)
		want := placement.Explain(i, rules, runners)
		got := placement.Explain(i, shuffled(t, rules), shuffled(t, runners))
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("with another order of the lists\n%s\nbecomes\n%s", shown(want), shown(got))
		}
	})
}

func TestExplanationMatchesDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, rules, runners := drawInstall(t), drawRules(t), drawRunners(t)
		d, err := placement.Decide(i, rules, runners)
		e := placement.Explain(i, rules, runners)
		if e.Decision != d || fmt.Sprint(e.Refused) != fmt.Sprint(err) {
			t.Fatalf("Decide: %v, %v; Explain: %v, %v", d, err, e.Decision, e.Refused)
		}
		var won []placement.Candidate
		level := placement.Level(0)
		for _, c := range e.Candidates {
			if c.Won {
				won = append(won, c)
			}
			if c.Why == "" || c.Level < level {
				t.Fatalf("%v has no reason or is out of order in\n%s", c, shown(e))
			}
			level = c.Level
		}
		if err != nil && len(won) > 0 || err == nil && (len(won) != 1 || won[0].Runner != d.Runner || won[0].Rule != d.Rule || won[0].Level != d.Level) {
			t.Fatalf("Decide: %v, %v; winning candidates %v", d, err, won)
		}
	})
}

func TestLessSpecificRuleChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, rules, runners := drawInstall(t), drawRules(t), drawRunners(t)
		before, _ := placement.Decide(i, rules, runners)
		if before.Rule == "" {
			return
		}
		winner := rules[slices.IndexFunc(rules, func(r placement.Rule) bool { return r.ID == before.Rule })]
		more := placement.Rule{ID: "rul_9", Org: "acme", Match: drawMatch(t), Runner: "run_0"}
		if placement.Compare(winner, more) > 0 {
			return
		}
		if after, _ := placement.Decide(i, append(rules, more), runners); after != before {
			t.Fatalf("%v, less specific than %v, changed %v to %v", more, winner, before, after)
		}
	})
}

// If a customer disables a runner, its jobs must not move to a level of lower
// precedence.
func TestDisabledRunnerDoesNotChangeTheLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, rules, runners := drawInstall(t), drawRules(t), drawRunners(t)
		before, _ := placement.Decide(i, rules, runners)
		if before.Runner == "" {
			return
		}
		off := slices.IndexFunc(runners, func(r placement.Runner) bool { return r.ID == before.Runner })
		runners[off].Mode = rapid.SampledFrom([]fairlead.RunnerMode{fairlead.ModeDisabled, fairlead.ModeDraining}).Draw(t, "to")
		after, err := placement.Decide(i, rules, runners)
		if after.Level != before.Level || after.Rule != before.Rule {
			t.Fatalf("the decision changed from %v to %v, %v", before, after, err)
		}
		if now := runners[slices.IndexFunc(runners, func(r placement.Runner) bool { return r.ID == after.Runner })]; now.Group != runners[off].Group {
			t.Fatalf("the group changed from %s to %s", runners[off].Group, now.Group)
		}
	})
}

// A pause is short, and bindings last.
func TestPauseDoesNotChangeTheDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, rules, runners := drawInstall(t), drawRules(t), drawRunners(t)
		before, err := placement.Decide(i, rules, runners)
		for n := range runners {
			if runners[n].Mode == fairlead.ModeEnabled {
				runners[n].Mode = fairlead.ModePaused
			}
		}
		if after, also := placement.Decide(i, rules, runners); after != before || (err == nil) != (also == nil) {
			t.Fatalf("the decision changed from %v, %v to %v, %v", before, err, after, also)
		}
	})
}

// A new runner takes no installs from an older one of the same rank.
func TestYoungerRunnerTakesNoInstalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, rules, runners := drawInstall(t), drawRules(t), drawRunners(t)
		before, err := placement.Decide(i, rules, runners)
		if err != nil {
			return
		}
		r := runners[slices.IndexFunc(runners, func(r placement.Runner) bool { return r.ID == before.Runner })]
		r.ID, r.Name = "run_9", "younger"
		if after, _ := placement.Decide(i, rules, append(runners, r)); after != before {
			t.Fatalf("the decision changed from %v to %v", before, after)
		}
	})
}

func TestBindingOutlivesRulesAndDryRunIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, rules, runners := drawInstall(t), drawRules(t), drawRunners(t)
		b, err := placement.Bind(i, rules, runners)
		if err != nil {
			return
		}
		i.Bound, i.HasState = &b, rapid.Bool().Draw(t, "has state")

		rules = drawRules(t)
		if again, err := placement.Bind(i, rules, runners); err != nil || again != b {
			t.Fatalf("other rules changed the binding from %v to %v, %v", b, again, err)
		}

		o := placement.RefreshOptions{
			Deployment: rapid.SampledFrom([]fairlead.DeploymentID{"", "", "", "dep_1"}).Draw(t, "deployment"),
			Migrate:    rapid.Bool().Draw(t, "migrate"), AcceptLoss: rapid.Bool().Draw(t, "accept loss"),
		}
		real, refused := placement.Refresh(i, rules, runners, o)
		o.DryRun = true
		dry, same := placement.Refresh(i, rules, runners, o)
		if fmt.Sprint(refused) != fmt.Sprint(same) || dry.Write != nil || dry.Move {
			t.Fatalf("dry run: %+v, %v; real refresh: %v", dry, same, refused)
		}
		write, move := real.Write, real.Move
		real.Write, real.Move = nil, false
		if real != dry {
			t.Fatalf("dry run: %+v; real refresh: %+v", dry, real)
		}
		if refused != nil {
			if write != nil {
				t.Fatalf("refused with %v, but Write is %v", refused, write)
			}
			return
		}
		if o.Deployment != "" || real.StorageChanged && i.HasState && o.Migrate == o.AcceptLoss {
			t.Fatalf("Refresh does not refuse: %+v", real)
		}
		if real.Changed != (real.Runner != b.Runner) || (real.Changed || real.StorageChanged) && write == nil || move && !(o.Migrate && i.HasState) {
			t.Fatalf("bound to %v: result %+v, Write %v, Move %t", b, real, write, move)
		}
		if write == nil {
			return
		}
		// After one refresh, a second one changes nothing.
		i.Bound, o.DryRun = write, false
		if again, err := placement.Refresh(i, rules, runners, o); err != nil || again.Changed || again.StorageChanged || again.Write != nil || again.Runner != write.Runner {
			t.Fatalf("second refresh: %+v, %v", again, err)
		}
	})
}

func TestLineageHoldsAllGroupsAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := drawPath(t), drawPath(t)
		above := p.Lineage()
		if len(above) != p.Depth()+1 || above[0] != p || above[len(above)-1] != "" {
			t.Fatalf("the lineage of %s is %v", p, above)
		}
		if q.Contains(p) != slices.Contains(above, q) {
			t.Fatalf("%s contains %s: %t, the lineage of the latter is %v", q, p, q.Contains(p), above)
		}
		if back, err := placement.ParsePath(p.String()); err != nil || back != p {
			t.Fatalf("ParsePath(%s) = %s, %v", p, back, err)
		}
	})
}
