package policy_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/policy"
)

// The values of the generators are few, so that rules and requests meet.
var (
	someKinds   = []string{"aws_iam_user", "aws_instance", "apps/v1 Deployment"}
	someValues  = []any{"bad", []any{map[string]any{"image": "evil.example/x:1"}}, "good", true, changeset.Unknown, changeset.Sensitive}
	someActions = []changeset.Action{changeset.Create, changeset.Update, changeset.Replace, changeset.Delete, changeset.Import, changeset.Move, changeset.Forget, changeset.Run, "vanish"}
)

func someRequest(t *rapid.T) policy.Request {
	q := policy.Request{Now: time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "now"), 0), Component: "web", Type: rapid.SampledFrom([]string{"terraform", "script", "helm"}).Draw(t, "type"),
		Operation: rapid.SampledFrom(job.Operations()).Draw(t, "operation"), Storage: rapid.SampledFrom([]string{"", "http", "s3"}).Draw(t, "storage")}
	if rapid.Bool().Draw(t, "planned") {
		q.Plan = &policy.Plan{Omitted: rapid.IntRange(0, 1).Draw(t, "omitted"), Others: policy.Counts{Destroys: rapid.IntRange(0, 3).Draw(t, "others")}}
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			attributes := map[string]any{}
			for _, name := range []string{"a", "b", "containers"} {
				if rapid.Bool().Draw(t, "has "+name) {
					attributes[name] = rapid.SampledFrom(someValues).Draw(t, name)
				}
			}
			q.Plan.Changes = append(q.Plan.Changes, change(rapid.SampledFrom(someActions).Draw(t, "action"), rapid.SampledFrom(someKinds).Draw(t, "kind"), "a", attributes))
		}
	}
	return q
}

// restrictions are parts of a policy by field. Each makes a policy stricter.
func restrictions() map[string][]string {
	return map[string][]string{
		"operations": {"operations: [plan, apply]", "operations: []"},
		"types":      {"types: [terraform]", "types: [script, helm]"},
		"windows":    {"windows: {w: {time_zone: Europe/Berlin, days: [mon, sat], from: '22:00', to: '04:00'}}"},
		"ceilings":   {"ceilings: {component: {destroys: 1}}", "ceilings: {deployment: {destroys: 2, creates: 1}}"},
		"deny":       {"deny: {r: {types: ['aws_*'], actions: [create, delete]}}", "deny: {r: {when: {/a: {is: [bad]}, /b: {is_not: [good]}}}}"},
		"approvals":  {"approvals: {r: {actions: [delete, replace]}}"},
		"images":     {"images: [registry.example.com/acme/**]", "images: []"},
		"storages":   {"storages: [s3]"},
		"telemetry":  {"telemetry: [logs]"},
	}
}

// strictness orders the effects.
func strictness(e policy.Effect) int {
	return map[policy.Effect]int{policy.Allow: 0, policy.NeedsApproval: 1, policy.Deny: 2}[e]
}

// A customer that adds a rule never permits more by it.
func TestAnAddedRuleNeverPermitsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var base, more []string
		for field, parts := range restrictions() {
			switch rapid.IntRange(0, 2).Draw(t, field) {
			case 1:
				base = append(base, rapid.SampledFrom(parts).Draw(t, "of "+field))
			case 2:
				more = append(more, rapid.SampledFrom(parts).Draw(t, "of "+field))
			}
		}
		read := func(parts ...string) *policy.Policy {
			text := "version: 1\n" + strings.Join(parts, "\n")
			p, problems := policy.Parse("p", []byte(text))
			if p == nil {
				t.Fatalf("%v\n%s", problems, text)
			}
			return p
		}
		before, after := read(base...), read(append(base, more...)...)
		q := someRequest(t)
		was, is := before.Decide(q), after.Decide(q)
		if strictness(is.Effect) < strictness(was.Effect) {
			t.Fatalf("%+v, and with more rules %+v: %q and %q", was, is, base, more)
		}
		if is.Effect != policy.Allow && (is.Rule == "" || is.Line < 2 || is.Reason == "") {
			t.Fatalf("the decision names no rule: %+v", is)
		}
	})
}

// A value that a rule reads and that is not known is judged as the worst value.
func TestUnknownValueIsNoBetterThanAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, problems := policy.Parse("p", []byte("version: 1\n"+rapid.SampledFrom(restrictions()["deny"]).Draw(t, "rule")))
		if p == nil {
			t.Fatal(problems)
		}
		q := someRequest(t)
		if q.Plan == nil {
			return
		}
		was := p.Decide(q)
		for i := range q.Plan.Changes {
			for _, values := range []any{q.Plan.Changes[i].Before, q.Plan.Changes[i].After} {
				m, _ := values.(map[string]any)
				for name := range m {
					m[name] = changeset.Unknown
				}
			}
		}
		if is := p.Decide(q); strictness(is.Effect) < strictness(was.Effect) {
			t.Fatalf("with known values %+v, with unknown ones %+v", was, is)
		}
	})
}

// The vendor chooses the text of a source; the rule must not read it in two ways.
func TestPatternsMatchAsPathsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab/*]{0,8}`).Draw(t, "pattern")
		text := rapid.StringMatching(`[ab/]{0,8}`).Draw(t, "text")
		if strings.Contains(pattern, "**") {
			return
		}
		want, err := path.Match(pattern, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := policy.MatchesPath(pattern, text); got != want {
			t.Fatalf("%q matches %q: %v, want %v", pattern, text, got, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, parts := range restrictions() {
		for _, part := range parts {
			f.Add("version: 1\n"+part, "bad")
		}
	}
	f.Add("version: 1\nproviders: {a/b/c: '>= 1'}\nsigners: []\nenvironment: [A_*]", "a/b/c")
	f.Fuzz(func(t *testing.T, text, value string) {
		p, problems := policy.Parse("p", []byte(text))
		if (p == nil) != (len(problems) > 0) {
			t.Fatalf("policy %v, problems %v", p, problems)
		}
		if p == nil {
			return
		}
		q := ask(job.OpApply, func(q *policy.Request) {
			q.Plan = planOf(change(changeset.Create, value, value, map[string]any{"a": []any{value}}))
			q.Source = &policy.Source{Origin: value}
			q.Module = &policy.Module{Sources: []string{value}, Providers: []policy.Provider{{Address: value, Version: value}}}
		})
		if d := p.Decide(q); d.Effect != policy.Allow && d.Rule == "" {
			t.Fatalf("%+v names no rule", d)
		}
		if again, _ := policy.Parse("p", []byte(text)); fmt.Sprint(again.Decide(q)) != fmt.Sprint(p.Decide(q)) {
			t.Fatal("the same policy decides in two ways")
		}
	})
}
