package placement_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
)

func TestInstallStaysBoundUntilRefreshed(t *testing.T) {
	i := shop()
	runners := []placement.Runner{inGroup("eu", "eu"), shared("shared")}
	b, err := placement.Bind(i, nil, runners)
	if err != nil || b.Runner != "run_eu" || b.Level != placement.LevelAncestor {
		t.Fatalf("bound to %v, %v", b, err)
	}
	i.Bound, i.HasState = &b, true

	// A new rule, a nearer runner and a disabled runner do not change the binding.
	runners = append(runners, inGroup("near", "eu/prod"))
	runners[0].Mode = fairlead.ModeDisabled
	rules := []placement.Rule{rule("rul_1", "shared", placement.Match{App: "shop"})}
	if again, err := placement.Bind(i, rules, runners); err != nil || again != b {
		t.Fatalf("bound to %v, %v", again, err)
	}

	// A dry run reports the new runner, and refuses because the state would be lost.
	dry, err := placement.Refresh(i, rules, runners, placement.RefreshOptions{DryRun: true})
	if fairlead.CodeOf(err) != "state-storage-changes" || dry.Runner != "run_shared" || !dry.Changed || !dry.StorageChanged || dry.Write != nil {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	if e := new(fairlead.Error); !asError(err, &e) || !strings.Contains(e.Message, "is in s3 eu, but runner shared keeps states in s3 shared") {
		t.Errorf("error %v", err)
	}
	out, err := placement.Refresh(i, rules, runners, placement.RefreshOptions{Migrate: true})
	if err != nil || out.Write == nil || !out.Move || out.Write.Runner != "run_shared" || out.Write.Rule != "rul_1" || !out.Changed {
		t.Fatalf("refresh: %+v, %v", out, err)
	}
	i.Bound = out.Write
	if again, err := placement.Refresh(i, rules, runners, placement.RefreshOptions{}); err != nil || again.Changed || again.Write != nil {
		t.Errorf("second refresh: %+v, %v", again, err)
	}
}

func asError(err error, e **fairlead.Error) bool {
	got, ok := err.(*fairlead.Error)
	*e = got
	return ok
}

func TestBindKeepsTheRunnerRefreshReplacesIt(t *testing.T) {
	eu, elsewhere, own := inGroup("eu", "eu"), inGroup("eu", "eu"), ownOf("mine", "ins_1")
	elsewhere.Storage = s3("other")
	moved := inGroup("eu", "us")
	same := inGroup("near", "eu/prod")
	same.Storage = eu.Storage
	bound := func(state bool) placement.Install {
		i := shop()
		i.Bound, i.HasState = &placement.Binding{Runner: "run_eu", Storage: s3("eu"), Level: placement.LevelAncestor}, state
		return i
	}
	type opts = placement.RefreshOptions
	for consequence, c := range map[string]struct {
		in       placement.Install
		runners  []placement.Runner
		bindCode fairlead.Code
		o        opts
		code     fairlead.Code
		runner   fairlead.RunnerID
		changed  bool
		writes   bool
		moves    bool
	}{
		"nothing has changed":                           {bound(true), []placement.Runner{eu}, "", opts{}, "", "run_eu", false, false, false},
		"a disabled runner is kept":                     {bound(true), []placement.Runner{in(eu, fairlead.ModeDisabled)}, "", opts{}, "", "run_eu", false, false, false},
		"a nearer runner with the same storage":         {bound(true), []placement.Runner{eu, same}, "", opts{}, "", "run_near", true, true, false},
		"a nearer runner that is draining":              {bound(true), []placement.Runner{eu, in(same, fairlead.ModeDraining)}, "", opts{}, "runner-unavailable", "run_eu", false, false, false},
		"another storage, and no option":                {bound(true), []placement.Runner{eu, own}, "", opts{}, "state-storage-changes", "run_mine", true, false, false},
		"another storage, and the state is moved":       {bound(true), []placement.Runner{eu, own}, "", opts{Migrate: true}, "", "run_mine", true, true, true},
		"another storage, and the state is given up":    {bound(true), []placement.Runner{eu, own}, "", opts{AcceptLoss: true}, "", "run_mine", true, true, false},
		"another storage, and there is no state":        {bound(false), []placement.Runner{eu, own}, "", opts{}, "", "run_mine", true, true, false},
		"no state to move":                              {bound(false), []placement.Runner{eu, own}, "", opts{Migrate: true}, "", "run_mine", true, true, false},
		"the state both moved and given up":             {bound(true), []placement.Runner{eu, own}, "", opts{Migrate: true, AcceptLoss: true}, "migrate-or-lose", "run_eu", false, false, false},
		"a deployment runs":                             {bound(true), []placement.Runner{eu, same}, "", opts{Deployment: "dep_1"}, "deployment-runs", "run_near", true, false, false},
		"a deployment runs, and nothing would change":   {bound(true), []placement.Runner{eu}, "", opts{Deployment: "dep_1"}, "deployment-runs", "run_eu", false, false, false},
		"a dry run writes nothing":                      {bound(true), []placement.Runner{eu, same}, "", opts{DryRun: true}, "", "run_near", true, false, false},
		"the runner was deleted, and there is another":  {bound(true), []placement.Runner{same}, "bound-runner-gone", opts{}, "", "run_near", true, true, false},
		"the runner was deleted, and there is no other": {bound(true), nil, "bound-runner-gone", opts{}, "no-runner", "run_eu", false, false, false},
		"the runner moved to another group":             {bound(true), []placement.Runner{moved}, "bound-runner-gone", opts{}, "no-runner", "run_eu", false, false, false},
		"the same runner with another storage":          {bound(true), []placement.Runner{elsewhere}, "state-storage-changed", opts{}, "state-storage-changes", "run_eu", false, false, false},
		"the same runner, and the state is moved":       {bound(true), []placement.Runner{elsewhere}, "state-storage-changed", opts{Migrate: true}, "", "run_eu", false, true, true},
		"the same runner, and there is no state":        {bound(false), []placement.Runner{elsewhere}, "", opts{}, "", "run_eu", false, true, false},
		"not bound yet: nothing to change":              {shop(), []placement.Runner{eu}, "", opts{}, "", "run_eu", false, false, false},
		"not bound yet, and there is no runner":         {shop(), nil, "no-runner", opts{}, "no-runner", "", false, false, false},
	} {
		t.Run(consequence, func(t *testing.T) {
			before := c.in.Bound
			b, err := placement.Bind(c.in, nil, c.runners)
			if fairlead.CodeOf(err) != c.bindCode || err == nil && before != nil && b.Runner != before.Runner {
				t.Errorf("Bind: %v, %v; want code %q", b, err, c.bindCode)
			}
			out, err := placement.Refresh(c.in, nil, c.runners, c.o)
			if fairlead.CodeOf(err) != c.code || out.Runner != c.runner || out.Changed != c.changed || (out.Write != nil) != c.writes || out.Move != c.moves {
				t.Errorf("Refresh: %+v, %v", out, err)
			}
		})
	}
}

func TestInvalidRuleIsRefused(t *testing.T) {
	foreign := inGroup("r", "")
	foreign.Org = "other"
	for consequence, c := range map[string]struct {
		match  placement.Match
		runner placement.Runner
		code   fairlead.Code
	}{
		"a shared runner serves all":                   {placement.Match{}, shared("r"), ""},
		"the root group's runner serves the org":       {placement.Match{}, inGroup("r", ""), ""},
		"a group's runner serves those below":          {placement.Match{Group: "eu/prod"}, inGroup("r", "eu"), ""},
		"a group's runner serves the group":            {placement.Match{Group: "eu/**"}, inGroup("r", "eu"), ""},
		"a group's runner serves no group above":       {placement.Match{Group: "/"}, inGroup("r", "eu"), "runner-out-of-reach"},
		"a group's runner serves no other group":       {placement.Match{Group: "us/**"}, inGroup("r", "eu"), "runner-out-of-reach"},
		"a rule for all groups needs a runner for all": {placement.Match{App: "shop"}, inGroup("r", "eu"), "runner-out-of-reach"},
		"an own runner serves only its install":        {placement.Match{}, ownOf("r", "ins_1"), "runner-out-of-reach"},
		"another tenant's runner does not exist":       {placement.Match{}, foreign, "runner-not-found"},
		"a group with an empty name":                   {placement.Match{Group: "eu//prod"}, shared("r"), "invalid-match"},
		"a group with a leading slash":                 {placement.Match{Group: "/eu"}, shared("r"), "invalid-match"},
		"a star inside a path":                         {placement.Match{Group: "eu/*/prod"}, shared("r"), "invalid-match"},
		"a group that matches every group":             {placement.Match{Group: "/**"}, shared("r"), "invalid-match"},
		"too deep a group":                             {placement.Match{Group: strings.Repeat("a/", 20) + "a"}, shared("r"), "invalid-match"},
		"an invalid app name":                          {placement.Match{App: "Shop"}, shared("r"), "invalid-name"},
		"two adjacent stars":                           {placement.Match{Labels: labels("a", "x**")}, shared("r"), "invalid-match"},
		"an invalid key":                               {placement.Match{Labels: labels("a b", "x")}, shared("r"), "invalid-label"},
		"a star in a key":                              {placement.Match{Labels: labels("a*", "x")}, shared("r"), "invalid-label"},
		"an invalid value":                             {placement.Match{Labels: labels("a", "x y")}, shared("r"), "invalid-label"},
		"unsorted labels":                              {placement.Match{Labels: placement.Labels{{Key: "b"}, {Key: "a"}}}, shared("r"), "invalid-label"},
		"a label twice":                                {placement.Match{Labels: placement.Labels{{Key: "a"}, {Key: "a"}}}, shared("r"), "invalid-label"},
	} {
		t.Run(consequence, func(t *testing.T) {
			err := placement.CheckRule(rule("rul_1", "r", c.match), c.runner)
			if fairlead.CodeOf(err) != c.code {
				t.Errorf("error %v, want code %q", err, c.code)
			}
		})
	}
	if err := placement.CheckRule(rule("rul_1", "r", placement.Match{}), shared("another")); err == nil {
		t.Error("CheckRule accepts a runner that the rule does not name")
	}
}

func TestRuleMatchesItsInstalls(t *testing.T) {
	for consequence, c := range map[string]struct {
		match placement.Match
		yes   bool
	}{
		"no condition":                     {placement.Match{}, true},
		"the group alone":                  {placement.Match{Group: "eu/prod"}, true},
		"the group and below":              {placement.Match{Group: "eu/prod/**"}, true},
		"a group above alone":              {placement.Match{Group: "eu"}, false},
		"a group above and below":          {placement.Match{Group: "eu/**"}, true},
		"the root group alone":             {placement.Match{Group: "/"}, false},
		"a name that begins the same":      {placement.Match{Group: "eu/pro/**"}, false},
		"the app":                          {placement.Match{App: "shop"}, true},
		"another app":                      {placement.Match{App: "blog"}, false},
		"a label":                          {placement.Match{Labels: labels("env", "prod")}, true},
		"a label with another value":       {placement.Match{Labels: labels("env", "test")}, false},
		"a missing label":                  {placement.Match{Labels: labels("zone", "*")}, false},
		"any value":                        {placement.Match{Labels: labels("env", "*")}, true},
		"the begin of a value":             {placement.Match{Labels: labels("env", "pr*")}, true},
		"the end of a value":               {placement.Match{Labels: labels("env", "*od")}, true},
		"an end that is in the middle":     {placement.Match{Labels: labels("env", "*ro")}, false},
		"begin and end that overlap":       {placement.Match{Labels: labels("env", "pro*rod")}, false},
		"pieces in their order":            {placement.Match{Labels: labels("env", "*r*d*")}, true},
		"pieces in another order":          {placement.Match{Labels: labels("env", "*d*r*")}, false},
		"the second of two labels differs": {placement.Match{Labels: labels("env", "prod", "tier", "iron")}, false},
	} {
		_, err := placement.Decide(shop(), []placement.Rule{rule("rul_1", "s", c.match)}, []placement.Runner{shared("s")})
		d, _ := placement.Decide(shop(), []placement.Rule{rule("rul_1", "s", c.match)}, []placement.Runner{shared("s")})
		if err != nil || (d.Rule != "") != c.yes {
			t.Errorf("%s (%s): matches %t, %v", consequence, c.match, d.Rule != "", err)
		}
	}
}

// The matches are ordered from the most specific to the least. Each criterion of
// Compare decides at least once while the criteria after it favor the other match.
func TestCompareOrdersBySpecificity(t *testing.T) {
	order := []placement.Match{
		{Group: "a/b/**"},
		{Group: "a"},
		{Group: "a/**", App: "shop", Labels: labels("k", "x", "l", "y")},
		{Group: "a/**", App: "shop"},
		{Group: "a/**", Labels: labels("k", "x")},
		{Group: "/"},
		{App: "shop"},
		{Labels: labels("k", "*", "l", "*")},
		{Labels: labels("l", "x")},
		{Labels: labels("k", "*xy")},
		{Labels: labels("k", "x*y*")},
		{Labels: labels("k", "x*")},
		{Labels: labels("k", "*x*")},
		{Labels: labels("k", "*y*")},
		{Labels: labels("l", "*")},
		{},
	}
	for i, a := range order {
		for j, b := range order {
			// The IDs would give the opposite order.
			got := placement.Compare(rule(string(rune('z'-i)), "r", a), rule(string(rune('z'-j)), "r", b))
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("Compare(%q, %q) = %d", a, b, got)
			}
		}
	}
}

func TestInvalidPathsAndLabelsAreRefused(t *testing.T) {
	for _, text := range []string{"/a", "a/", "a//b", "A", "a b", "..", "a/../b", strings.Repeat("a/", 20) + "a", strings.Repeat("x", 5000)} {
		if p, err := placement.ParsePath(text); fairlead.CodeOf(err) != "invalid-group" || len(err.Error()) > 300 {
			t.Errorf("ParsePath(%.40q) = %q, %v", text, p, err)
		}
	}
	many := map[string]string{}
	for i := range placement.MaxLabels + 1 {
		many["k"+string(rune('a'+i))] = ""
	}
	if err := placement.LabelsOf(many).Check(); fairlead.CodeOf(err) != "invalid-label" {
		t.Errorf("too many labels: %v", err)
	}
}

func TestRuleSurvivesJSON(t *testing.T) {
	r := rule("rul_1", "eu", placement.Match{Group: "eu/**", Labels: labels("tier", "g*", "env", "prod")})
	data, err := json.Marshal(r)
	if want := `{"id":"rul_1","org":"acme","match":{"group":"eu/**","labels":{"env":"prod","tier":"g*"}},"runner":"run_eu"}`; err != nil || string(data) != want {
		t.Errorf("JSON %s, %v", data, err)
	}
	var back placement.Rule
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, r) || back.Key() != r.Key() || len(r.Key()) != 64 {
		t.Errorf("decoded %v, %v", back, err)
	}
}
