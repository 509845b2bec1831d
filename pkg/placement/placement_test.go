package placement_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
)

// s3 returns a storage in the bucket.
func s3(bucket string) placement.Storage { return placement.Storage{Kind: "s3", Place: bucket} }

func shared(name string) placement.Runner {
	return placement.Runner{ID: fairlead.RunnerID("run_" + name), Name: name, Scope: placement.Shared, Mode: fairlead.ModeEnabled, Storage: s3("shared")}
}

func inGroup(name, group string) placement.Runner {
	r := shared(name)
	r.Org, r.Scope, r.Group, r.Storage = "acme", placement.Group, placement.Path(group), s3(name)
	return r
}

func ownOf(name, install string) placement.Runner {
	r := inGroup(name, "")
	r.Scope, r.Install = placement.Own, fairlead.InstallID(install)
	return r
}

func in(r placement.Runner, s fairlead.RunnerMode) placement.Runner {
	r.Mode = s
	return r
}

func rule(id, runner string, m placement.Match) placement.Rule {
	return placement.Rule{ID: placement.RuleID(id), Org: "acme", Match: m, Runner: fairlead.RunnerID("run_" + runner)}
}

// labels returns labels from alternating keys and values.
func labels(pairs ...string) placement.Labels {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return placement.LabelsOf(m)
}

// shop returns an install of app shop in group eu/prod.
func shop() placement.Install {
	return placement.Install{ID: "ins_1", Name: "shop-1", Org: "acme", Group: "eu/prod", App: "shop", Labels: labels("env", "prod", "tier", "gold")}
}

func TestRunnerIsChosenByPrecedence(t *testing.T) {
	rules := []placement.Rule{
		rule("anywhere", "default", placement.Match{}),
		rule("production", "eu", placement.Match{Labels: labels("env", "prod")}),
	}
	runners := []placement.Runner{ownOf("mine", "ins_1"), inGroup("default", ""), inGroup("eu", "eu"), inGroup("eu-prod", "eu/prod"), shared("shared")}

	// When the winner of a step is removed, the next candidate wins.
	steps := []struct {
		runner string
		level  placement.Level
	}{
		{"mine", placement.LevelOwn},
		{"eu", placement.LevelRule},
		{"default", placement.LevelRule},
		{"eu-prod", placement.LevelGroup},
		{"eu", placement.LevelAncestor},
		{"default", placement.LevelAncestor},
		{"shared", placement.LevelShared},
	}
	drop := func(name string) {
		var rest []placement.Runner
		for _, r := range runners {
			if r.Name != name {
				rest = append(rest, r)
			}
		}
		runners = rest
	}
	for i, step := range steps {
		d, err := placement.Decide(shop(), rules, runners)
		if err != nil || d.Name != step.runner || d.Level != step.level {
			t.Fatalf("step %d: %v, %v; want %s by %s", i, d, err, step.runner, step.level)
		}
		if step.level == placement.LevelRule {
			rules = rules[:len(rules)-1]
		} else {
			drop(step.runner)
		}
	}
	if d, err := placement.Decide(shop(), rules, runners); fairlead.CodeOf(err) != "no-runner" || fairlead.KindOf(err) != fairlead.KindConflict || d != (placement.Decision{}) {
		t.Errorf("without rules and runners: %v, %v", d, err)
	}
}

// Decide ignores rules and runners that cannot apply to the install. It never skips a
// rule or runner that can apply because of a runner's mode.
func TestDecideSkipsOnlyForeignRunners(t *testing.T) {
	any := placement.Match{}
	foreign := inGroup("foreign", "eu/prod")
	foreign.Org = "other"
	foreignRule := rule("foreign", "shared", any)
	foreignRule.Org = "other"
	sharedWithOrg := shared("odd")
	sharedWithOrg.Org = "other"
	otherShop := ownOf("theirs", "ins_2")
	for consequence, c := range map[string]struct {
		rules   []placement.Rule
		runners []placement.Runner
		runner  string
		code    fairlead.Code
	}{
		"another tenant's runner is ignored":                {nil, []placement.Runner{foreign}, "", "no-runner"},
		"another tenant's rule is ignored":                  {[]placement.Rule{foreignRule}, []placement.Runner{shared("shared"), inGroup("eu", "eu")}, "eu", ""},
		"a shared runner with an org is ignored":            {nil, []placement.Runner{sharedWithOrg}, "", "no-runner"},
		"another install's own runner is ignored":           {nil, []placement.Runner{otherShop}, "", "no-runner"},
		"a rule cannot choose another install's own runner": {[]placement.Rule{rule("r", "theirs", any)}, []placement.Runner{otherShop, shared("shared")}, "", "broken-rule"},
		"a rule cannot choose another group's runner":       {[]placement.Rule{rule("r", "us", any)}, []placement.Runner{inGroup("us", "us"), shared("shared")}, "", "broken-rule"},
		"a rule cannot choose another tenant's runner":      {[]placement.Rule{rule("r", "foreign", any)}, []placement.Runner{foreign, shared("shared")}, "", "broken-rule"},
		"a rule with a deleted runner is not skipped":       {[]placement.Rule{rule("r", "gone", any)}, []placement.Runner{shared("shared")}, "", "broken-rule"},
		"a group below the install's is not above it":       {nil, []placement.Runner{inGroup("deep", "eu/prod/x"), shared("shared")}, "shared", ""},
		"a group with the same prefix is another group":     {nil, []placement.Runner{inGroup("e", "e"), inGroup("eu-pr", "eu/pr"), shared("shared")}, "shared", ""},
		"a disabled own runner is not skipped":              {nil, []placement.Runner{in(ownOf("mine", "ins_1"), fairlead.ModeDisabled), shared("shared")}, "mine", "runner-unavailable"},
		"a rule's draining runner is not skipped":           {[]placement.Rule{rule("r", "eu", any)}, []placement.Runner{in(inGroup("eu", "eu"), fairlead.ModeDraining), shared("shared")}, "eu", "runner-unavailable"},
		"a group's disabled runner is not skipped":          {nil, []placement.Runner{in(inGroup("eu-prod", "eu/prod"), fairlead.ModeDisabled), inGroup("eu", "eu")}, "eu-prod", "runner-unavailable"},
		"a pause does not matter":                           {nil, []placement.Runner{in(inGroup("a", "eu"), fairlead.ModePaused), inGroup("b", "eu")}, "a", ""},
		"in one group, an enabled runner comes first":       {nil, []placement.Runner{in(inGroup("a", "eu"), fairlead.ModeDisabled), inGroup("b", "eu")}, "b", ""},
		"in one group, the older runner comes first":        {nil, []placement.Runner{inGroup("b", "eu"), inGroup("a", "eu")}, "a", ""},
		"of shared runners, an enabled one comes first":     {nil, []placement.Runner{in(shared("a"), fairlead.ModeDraining), shared("b")}, "b", ""},
		"a runner in an unknown mode is unavailable":        {nil, []placement.Runner{in(shared("a"), "resting")}, "a", "runner-unavailable"},
		"a rule may choose a shared runner":                 {[]placement.Rule{rule("r", "shared", any)}, []placement.Runner{shared("shared"), inGroup("eu", "eu")}, "shared", ""},
	} {
		t.Run(consequence, func(t *testing.T) {
			d, err := placement.Decide(shop(), c.rules, c.runners)
			if d.Name != c.runner || fairlead.CodeOf(err) != c.code {
				t.Errorf("runner %q, error %v; want %q with code %q", d.Name, err, c.runner, c.code)
			}
			if err != nil && fairlead.KindOf(err) != fairlead.KindConflict {
				t.Errorf("the error has the kind %s", fairlead.KindOf(err))
			}
			if e := placement.Explain(shop(), c.rules, c.runners); strings.Contains(shown(e), "foreign:") || strings.Contains(shown(e), "theirs") {
				t.Errorf("the explanation shows runners that the install must not see:\n%s", shown(e))
			}
		})
	}
}

// Shared runners have no org. An install without an org must not get a tenant's runner
// whose org is missing.
func TestInstallWithoutOrgGetsNoRunner(t *testing.T) {
	stray := inGroup("stray", "")
	stray.Org = ""
	i := shop()
	i.Org = ""
	if d, err := placement.Decide(i, nil, []placement.Runner{stray}); err == nil {
		t.Errorf("the install gets runner %s", d.Name)
	}
}

func TestEveryLosingCandidateHasAReason(t *testing.T) {
	old := inGroup("old", "eu")
	rules := []placement.Rule{
		rule("rul_1", "default", placement.Match{}),
		rule("rul_2", "eu", placement.Match{Group: "eu/**", Labels: labels("env", "prod")}),
		rule("rul_3", "eu", placement.Match{Group: "eu/**", Labels: labels("env", "*")}),
		rule("rul_4", "eu", placement.Match{App: "blog"}),
		rule("rul_5", "gone", placement.Match{Labels: labels("zone", "a")}),
	}
	runners := []placement.Runner{inGroup("default", ""), inGroup("eu", "eu"), old, inGroup("eu-prod", "eu/prod"), inGroup("us", "us"), shared("shared")}
	got := shown(placement.Explain(shop(), rules, runners))
	want := `install shop-1: runner eu, by rule rul_2
* rule      rul_2: group eu/**, label env=prod -> eu  it is the most specific rule that matches
- rule      rul_3: group eu/**, label env=* -> eu     less specific than rule rul_2: fewer of its labels are exact
- rule      rul_1: every install -> default           less specific than rule rul_2: it names no group
- rule      rul_4: app blog -> eu                     does not match: the install is of app shop
- rule      rul_5: label zone=a -> ?                  does not match: the install has no label zone
- group     eu-prod                                   a rule that matches comes first
- ancestor  eu                                        a rule that matches comes first
- ancestor  old                                       a rule that matches comes first
- ancestor  default                                   a rule that matches comes first
- shared    shared                                    a rule that matches comes first
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	i := shop()
	i.Bound = &placement.Binding{Runner: "run_old"}
	got = shown(placement.Explain(i, nil, []placement.Runner{in(inGroup("eu", "eu"), fairlead.ModeDisabled), old, inGroup("default", ""), inGroup("older", "eu/prod")}[:3]))
	want = `install shop-1: runner old (ancestor)
bound to it
* ancestor  old      it is in the nearest group above that has a runner, and nothing takes precedence
- ancestor  eu       it is disabled, and runner old of the same rank is not
- ancestor  default  group eu is nearer than /
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRefusalIsExplained(t *testing.T) {
	got := shown(placement.Explain(shop(), []placement.Rule{rule("rul_1", "us", placement.Match{})}, []placement.Runner{inGroup("us", "us"), shared("shared")}))
	want := `install shop-1: rule rul_1 (every install) decides where install shop-1 runs, but its runner was deleted or does not serve group eu/prod
- rule    rul_1: every install -> ?  it decides, but its runner was deleted or does not serve the install's group: the deployment is refused
- shared  shared                     a rule that matches comes first
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got = shown(placement.Explain(shop(), nil, []placement.Runner{in(ownOf("mine", "ins_1"), fairlead.ModeDraining), shared("shared")}))
	want = `install shop-1: runner mine would serve install shop-1, but it is draining
- own     mine    it decides, but its runner is draining: the deployment is refused, because no other runner takes over automatically
- shared  shared  the install's own runner comes first
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDecisionSurvivesJSON(t *testing.T) {
	d, err := placement.Decide(shop(), nil, []placement.Runner{inGroup("eu", "eu")})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(d)
	if want := `{"runner":"run_eu","name":"eu","level":"ancestor","storage":{"kind":"s3","place":"eu"}}`; err != nil || string(data) != want {
		t.Errorf("got %s, %v", data, err)
	}
	var back placement.Decision
	if err := json.Unmarshal(data, &back); err != nil || back != d {
		t.Errorf("decoded %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"level":"best"}`), &back); err == nil {
		t.Error("an unknown level is accepted")
	}
}

func BenchmarkDecide(b *testing.B) {
	var rules []placement.Rule
	for i := range 10_000 {
		m := placement.Match{Labels: labels("env", "prod", "tier", fmt.Sprintf("t%d", i))}
		switch i % 10 {
		case 0: // matches
			m = placement.Match{Group: "eu/**", App: "shop", Labels: labels("env", "p*", "tier", "*", fmt.Sprintf("k%d", i%100), "*")}
		case 1:
			m.Group = "us/**"
		case 2:
			m.App = "blog"
		}
		rules = append(rules, rule(fmt.Sprintf("rul_%05d", i), "r-500", m))
	}
	var runners []placement.Runner
	for i := range 1000 {
		runners = append(runners, inGroup(fmt.Sprintf("r-%d", i), "eu"))
	}
	install := shop()
	have := install.Labels.Map()
	for i := range 10 {
		have[fmt.Sprintf("k%d", i*10)] = "x"
	}
	install.Labels = placement.LabelsOf(have)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := placement.Decide(install, rules, runners); err != nil {
			b.Fatal(err)
		}
	}
}

// shown renders an explanation as a table with a headline, in the format of docs/vendor/placement.md.
func shown(e placement.Explanation) string {
	var b strings.Builder
	switch {
	case e.Refused != nil:
		fmt.Fprintf(&b, "install %s: %s\n", e.Install.Name, e.Refused.Error())
	case e.Rule != "":
		fmt.Fprintf(&b, "install %s: runner %s, by rule %s\n", e.Install.Name, e.Name, e.Rule)
	default:
		fmt.Fprintf(&b, "install %s: runner %s (%s)\n", e.Install.Name, e.Name, e.Level)
	}
	if bound := e.Install.Bound; bound != nil {
		switch {
		case bound.Runner != e.Runner:
			fmt.Fprintf(&b, "bound to runner %s until it is refreshed\n", bound.Runner)
		default:
			b.WriteString("bound to it\n")
		}
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range e.Candidates {
		mark := "-"
		if c.Won {
			mark = "*"
		}
		what := c.Name
		if c.Level == placement.LevelRule {
			runner := c.Name
			if c.Runner == "" {
				runner = "?"
			}
			what = fmt.Sprintf("%s: %s -> %s", c.Rule, c.Match, runner)
		}
		fmt.Fprintf(w, "%s %s\t%s\t%s\n", mark, c.Level, what, c.Why) // a strings.Builder returns no errors
	}
	w.Flush()
	return b.String()
}
