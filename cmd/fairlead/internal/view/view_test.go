package view_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
)

func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func human(t *testing.T, d view.Document) string {
	t.Helper()
	var out bytes.Buffer
	if err := view.NewHuman(&out, &out, view.Style{}, view.Style{}, view.Screen{}, now).Print(d); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func asJSON(t *testing.T, d view.Document) string {
	t.Helper()
	var out bytes.Buffer
	if err := view.NewJSON(&out, &out).Print(d); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestEmptyListingsAreArrays(t *testing.T) {
	for name, d := range map[string]view.Document{
		"apps": view.Apps(nil), "installs": view.Installs(nil), "deployments": view.Deployments(nil),
		"jobs": view.Jobs(nil), "runners": view.Runners(nil), "log": view.JobLog(nil),
	} {
		if got := asJSON(t, d); got != "[]\n" {
			t.Errorf("no %s in JSON: %q", name, got)
		}
		if got := human(t, d); got != "" {
			t.Errorf("no %s for people: %q", name, got)
		}
	}
}

func outputs() view.Outputs {
	return view.Outputs{Components: map[string]map[string]wire.Output{
		"web": {
			"url":     {Value: json.RawMessage(`"https://example.com/?a=1&b=<2>"`)},
			"ports":   {Value: json.RawMessage(`[80, 443]`)},
			"big":     {Value: json.RawMessage(`12345678901234567890`)},
			"empty":   {Value: json.RawMessage(`""`)},
			"nothing": {Value: json.RawMessage(`null`)},
			"motd":    {Value: json.RawMessage(`"two\nlines\u001b[2J"`)},
		},
		"db":    {"password": {Sensitive: true}, "shown": {Sensitive: true, Value: json.RawMessage(`"s3cret"`)}},
		"empty": {},
	}}
}

func TestOutputs(t *testing.T) {
	want := `COMPONENT  OUTPUT    VALUE
db         password  (sensitive)
db         shown     s3cret
web        big       12345678901234567890
web        empty     ""
web        motd      "two\nlines\u001b[2J"
web        nothing   null
web        ports     [80,443]
web        url       https://example.com/?a=1&b=<2>
`
	if got := human(t, outputs()); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	var got map[string]map[string]any
	dec := json.NewDecoder(strings.NewReader(asJSON(t, outputs())))
	dec.UseNumber()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if _, there := got["db"]["password"]; there {
		t.Error("a sensitive value that was not asked for is in the JSON")
	}
	if v, there := got["web"]["nothing"]; !there || v != nil {
		t.Error("an output that is null is not in the JSON as null")
	}
	if got["web"]["big"] != json.Number("12345678901234567890") || got["db"]["shown"] != "s3cret" || len(got) != 3 {
		t.Errorf("got %v", got)
	}
	if hidden := outputs().Hidden(); len(hidden) != 1 || hidden[0] != "db.password" {
		t.Errorf("hidden: %v", hidden)
	}
}

func TestServerTextCannotControlTheTerminal(t *testing.T) {
	const evil = "x\x1b[2J\x1b]0;t\x07\u202ey"
	situations := []wire.Situation{{Kind: evil, Component: evil, What: evil, Known: []string{evil}, Next: []wire.NextStep{{Action: &wire.Action{Verb: evil}, Effect: evil}, {Action: &wire.Action{Verb: "install.show", Args: wire.ActionArgs{Install: evil}}, Effect: evil}, {Effect: evil}}}}
	finished := now()
	code := 1
	for name, d := range map[string]view.Document{
		"app":                       view.App{Name: evil, Description: evil, Version: wire.AppVersion{ID: evil, Inputs: []wire.AppInput{{Name: evil, Type: evil, Description: evil, Default: json.RawMessage(evil)}}, Components: []wire.AppComponent{{Name: evil, Type: evil, DependsOn: []string{evil}, Artifact: evil}}}},
		"situation of an install":   view.Install{Situations: situations},
		"situation of a deployment": view.Deployment{Situations: situations},
		"situation of a job":        view.Job{Situations: situations},
		"situation of a runner":     view.Runner{Situations: situations},
		"apps":                      view.Apps{{Name: evil, Description: evil}},
		"install": view.Install{Name: evil, App: evil, Runner: evil, State: evil, Deployment: evil, Queued: []string{evil}, ID: evil,
			Inputs: map[string]json.RawMessage{evil: json.RawMessage(`"` + evil + `"`)}, Components: []wire.InstallComponent{{Name: evil, State: evil, Version: evil, LockedBy: evil}}},
		"deployment": view.Deployment{ID: evil, State: evil, Message: evil, FinishedAt: &finished, Components: []wire.DeploymentComponent{{Name: evil, State: evil, Job: evil, Message: evil}}},
		"job": view.Job{ID: evil, State: evil, Operation: evil, Runner: evil, Reason: evil, Message: evil, ExitCode: &code, Log: []wire.LogStreamInfo{{Size: 3}},
			Plan: &wire.Plan{ChangeSet: &changeset.Set{Changes: []changeset.Change{{Address: evil, Action: evil, Changed: []string{evil}}, {Address: evil, Action: changeset.Move, Previous: evil}, {Address: evil, Action: changeset.Run, After: map[string]any{"image": evil}}}}}},
		"runner":  view.Runner{Name: evil, Description: evil, Sessions: []wire.RunnerSession{{Instance: evil, State: evil, Version: evil}}},
		"outputs": view.Outputs{Components: map[string]map[string]wire.Output{evil: {evil: {Value: json.RawMessage(`"` + evil + `"`)}}}},
		"log":     view.JobLog{{Epoch: 1, Text: evil}},
		"token":   view.Enrolment{Enrolment: wire.Enrolment{Token: evil}},
	} {
		if r, ok := harmless(human(t, d)); !ok {
			t.Errorf("%s prints %U:\n%q", name, r, human(t, d))
		}
	}
	var out bytes.Buffer
	view.NewHuman(&out, &out, view.Style{}, view.Style{}, view.Screen{}, now).Fail(view.Failure{Problem: wire.Problem{
		Status: 500, Detail: evil, Hint: evil, RequestID: evil, Errors: []wire.FieldError{{Location: evil, Message: evil}}}})
	if r, ok := harmless(out.String()); !ok {
		t.Errorf("a failure prints %U: %q", r, out.String())
	}
}

// A person approves a change for its reason: a hook that may have run, an object that another manager owns.
func TestPlanShowsWhyAnObjectChanges(t *testing.T) {
	got := human(t, view.Job{ID: "job_1", State: "succeeded", Operation: "plan", Plan: &wire.Plan{Changes: wire.Changes{Change: 1, Run: 1}, ChangeSet: &changeset.Set{Changes: []changeset.Change{
		{Address: "ConfigMap/acme/web", Action: changeset.Update, Changed: []string{"/data/a~1b"}, Reason: "takes over .data"},
		{Address: "aws_vpc.main", Action: changeset.Replace, Order: changeset.DeleteFirst, Reason: "replace_because_tainted"},
		{Address: "hook pre-upgrade", Action: changeset.Run, Unverified: true},
		{Address: "./run apply", Action: changeset.Run, Changed: []string{"/image"}, After: map[string]any{"image": "registry.example.com/my_tools@sha256:3b1a"}},
		{Address: "a.b", Action: changeset.Move, Previous: "a.a"}},
		Fetched: []changeset.Module{{Address: "module.a", Source: "x/a/y", Version: "1.2.0"}, {Address: "module.b", Source: "https://x.io/b.zip"}}}}})
	for _, want := range []string{`~ ConfigMap/acme/web (data["a/b"], takes over .data)`, "-/+ aws_vpc.main (replace because tainted)", "run hook pre-upgrade (unverified)", "run ./run apply (in registry.example.com/my_tools@sha256:3b1a, image)", "move a.b (was a.a)",
		"fetched module.a from x/a/y (version 1.2.0)\n", "fetched module.b from https://x.io/b.zip\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestSituationShowsFactsThenNextSteps(t *testing.T) {
	got := human(t, view.Deployment{ID: "dep_1", State: "awaiting-approval", Situations: []wire.Situation{
		{Kind: "lost", Component: "web", What: "The apply job_a was lost.", Known: []string{"No state was saved."},
			Next: []wire.NextStep{{Action: &wire.Action{Verb: "job.logs", Args: wire.ActionArgs{Job: "job_a"}}, Effect: "shows what it did"}, {Effect: "Compare both."}}},
		{Kind: "approval", What: "A plan waits.", Next: []wire.NextStep{{Action: &wire.Action{Verb: "deployment.approve", Args: wire.ActionArgs{Deployment: "dep_1"}}, Effect: "carries it out"}}},
	}})
	_, got, _ = strings.Cut(got, "\n\n")
	want := `
web: The apply job_a was lost.
  - No state was saved.
  > ` + "`fairlead job logs job_a`" + ` shows what it did
  > Compare both.

A plan waits.
  > ` + "`fairlead deployment approve dep_1`" + ` carries it out
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestColoursOnTerminalsOnly(t *testing.T) {
	env := map[string]string{}
	get := func(name string) string { return env[name] }
	if view.StyleFor(false, get).Colour || !view.StyleFor(true, get).Colour {
		t.Error("colours do not follow the terminal")
	}
	env["NO_COLOR"] = "1"
	if view.StyleFor(true, get).Colour {
		t.Error("NO_COLOR does not switch colours off")
	}
}

func TestPublishedListsChangedComponents(t *testing.T) {
	components := func(digests ...string) []wire.AppComponent {
		var cs []wire.AppComponent
		for i, d := range digests {
			if d != "" {
				cs = append(cs, wire.AppComponent{Name: string(rune('a' + i)), Artifact: d})
			}
		}
		return cs
	}
	got := human(t, view.Published{
		Version: wire.AppVersion{App: "shop", ID: "ver_2", New: true, Components: components("1", "3", "", "4")},
		Before:  &wire.AppVersion{Components: components("1", "2", "5")},
	})
	want := "✓ App shop: new version ver_2\n  a  source unchanged\n  b  source changed\n  c  removed\n  d  new\n"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	got = human(t, view.Published{Version: wire.AppVersion{App: "shop", ID: "ver_2"}})
	if got != "App shop is unchanged: version ver_2\n" {
		t.Errorf("got %q", got)
	}
}

func printed(t *testing.T, screen view.Screen, d view.Document) string {
	t.Helper()
	var out bytes.Buffer
	if err := view.NewHuman(&out, &out, view.Style{}, view.Style{}, screen, now).Print(d); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestOnlyTerminalTablesHaveRelativeTimes(t *testing.T) {
	app := wire.App{Name: "a", Version: wire.AppVersion{ID: "ver_1", CreatedAt: now().Add(-time.Hour).In(time.FixedZone("", 7200))}}
	const absolute, relative = "2026-01-02T02:04:05Z", "1 hour ago"
	for name, c := range map[string]struct {
		screen view.Screen
		doc    view.Document
		want   string
	}{
		"a table at a terminal": {view.Screen{Terminal: true}, view.Apps{app}, relative},
		"a table in a pipe":     {view.Screen{}, view.Apps{app}, absolute},
		"a field at a terminal": {view.Screen{Terminal: true}, view.App(app), absolute},
		"a field in a pipe":     {view.Screen{}, view.App(app), absolute},
		"a customer's mode":     {view.Screen{Terminal: true}, view.Runner{Customer: &wire.CustomerMode{Mode: "paused", Since: &app.Version.CreatedAt}}, absolute},
	} {
		if got := printed(t, c.screen, c.doc); !strings.Contains(got, c.want) {
			t.Errorf("%s has no %s:\n%s", name, c.want, got)
		}
	}
}

// Steps that were started ahead cost as much as steps with jobs, so a person sees how many an agent has.
func TestRunnerShowsTheWarmStepsOfItsAgents(t *testing.T) {
	agent := func(instance, state string, warm int) wire.RunnerSession {
		return wire.RunnerSession{Instance: instance, State: state, WarmSteps: warm, Capacity: 4, Running: []string{"job_1"}}
	}
	got := human(t, view.Runner{Name: "acme", Sessions: []wire.RunnerSession{agent("busy", "online", 3), agent("idle", "online", 0), agent("gone", "lost", 2)}})
	var warm []string
	for line := range strings.Lines(got) {
		if strings.Contains(line, "warm") {
			warm = append(warm, line)
		}
	}
	if want := "agent busy: warm steps that wait for a job: 3\n"; strings.Join(warm, "") != want {
		t.Errorf("the page has %q, want %q:\n%s", warm, want, got)
	}
}

func TestTablesFitNarrowTerminals(t *testing.T) {
	const width = 60
	id := "dep_" + strings.Repeat("0", 26)
	finished := now()
	for name, d := range map[string]view.Document{
		"deployments": view.Deployments{{ID: id, Install: "acme", Kind: "deploy", PlanOnly: true, State: "awaiting-approval", CreatedAt: now(), FinishedAt: &finished}, {ID: id}},
		"a failure":   view.Deployment{ID: id, Components: []wire.DeploymentComponent{{Name: "web", State: "failed", Message: strings.Repeat("the tool failed ", 20)}}},
		"apps":        view.Apps{{Name: "shop", Description: strings.Repeat("a shop ", 30), Version: wire.AppVersion{ID: "ver_" + strings.Repeat("0", 26)}}},
		"runners":     view.Runners{{Name: "acme-eu", Kind: "process", State: "online", Storage: "local", Description: "In Frankfurt, beside the database."}},
	} {
		for _, columns := range []int{width, 80} {
			got := printed(t, view.Screen{Terminal: true, Width: columns}, d)
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%s: a line of %d columns at %d:\n%s", name, n, columns, got)
				}
			}
			if name == "deployments" && strings.Count(got, id) != 2 {
				t.Errorf("an identifier is not whole:\n%s", got)
			}
		}
	}
	got := printed(t, view.Screen{Terminal: true, Width: 40}, view.Webhooks{{Name: "ops", URL: "https://a.example", Events: []string{"fairlead.job.failed", "fairlead.job.lost"}}})
	want := `WEBHOOK  ops
URL      https://a.example
EVENTS   fairlead.job.failed
         fairlead.job.lost
CREATED  never
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	got = printed(t, view.Screen{Terminal: true, Width: 60}, view.Webhooks{{Name: "ops", URL: "https://a.example", Events: []string{"a.b", "c.d", "e.f", "g.h", "i.j", "k.l", "m.n"}}})
	want = `WEBHOOK  URL                EVENTS                   CREATED
ops      https://a.example  a.b c.d e.f g.h i.j k.l  never
                            m.n
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestWaitingJobExplainsItsRunner(t *testing.T) {
	agent := func(draining bool, running ...string) wire.RunnerSession {
		return wire.RunnerSession{State: "online", Capacity: 2, Draining: draining, Running: running}
	}
	gone := wire.RunnerSession{State: "lost", Capacity: 8}
	for _, tt := range []struct {
		runner wire.Runner
		want   string
	}{
		{wire.Runner{State: "online", Mode: "draining", Sessions: []wire.RunnerSession{agent(false)}}, "waits: runner local is draining. `fairlead runner enable local` lets it start jobs"},
		{wire.Runner{State: "lost", Mode: "disabled"}, "waits: runner local is disabled. `fairlead runner enable local` lets it start jobs"},
		{wire.Runner{State: "online", Mode: "enabled", Customer: &wire.CustomerMode{Mode: "paused"}, Sessions: []wire.RunnerSession{agent(false)}}, "waits: the customer has set runner local to paused; only the customer can enable it"},
		{wire.Runner{State: "online", Mode: "enabled", Sessions: []wire.RunnerSession{agent(true), gone}}, "waits: every agent of runner local is draining"},
		{wire.Runner{State: "online", Mode: "enabled", Sessions: []wire.RunnerSession{agent(false, "job_1", "job_2"), gone}}, "waits for a free slot on runner local: it runs 2 of 2 jobs"},
		{wire.Runner{State: "online", Mode: "enabled", Sessions: []wire.RunnerSession{agent(false, "job_1")}}, "waits for runner local to claim it"},
		{wire.Runner{State: "never-seen", Mode: "enabled"}, "waits: runner local is not started yet"},
	} {
		tt.runner.Name = "local"
		if got := view.WhyWaiting(tt.runner); !strings.HasPrefix(got, tt.want) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestPlanOnlyCountsSkippedComponents(t *testing.T) {
	d := wire.Deployment{PlanOnly: true, State: "succeeded", Components: []wire.DeploymentComponent{{Name: "vpc", State: "unchanged"}, {Name: "postgres", State: "planned"},
		{Name: "api", State: "skipped", Reason: "needs-outputs", Message: "not planned: needs outputs of postgres"}}}
	got := human(t, view.Outcome{Deployment: d, Plans: []view.Plan{{Component: "postgres"}}})
	if want := "postgres: no changes\napi: not planned: needs outputs of postgres\n1 of 3 components not planned\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
