package appspec_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// acting is an app with an action for each trigger. Tests replace parts of it.
const acting = `fairlead: v1
name: shop
inputs:
  size: {default: small}
components:
  db: {type: terraform, source: ./db}
  web: {type: terraform, source: ./web, vars: {url: "${components.db.outputs.url}"}}
actions:
  restore:
    type: script
    source: ./restore/
    params:
      from: {description: Time of the backup.}
      keys: {type: list(string), default: [b, a]}
    vars: {from: "${params.from} in ${components.db.outputs.url}", keys: "${params.keys}", size: "${inputs.size}"}
    role: provision
    timeout: 90m
  backup:
    type: script
    source: ./backup
    schedule: {cron: "0 3 * * *", timezone: Europe/Berlin}
  migrate:
    type: script
    source: ./migrate
    vars: {url: "${components.db.outputs.url}"}
    before: [web.apply]
  check: {type: script, source: ./check, after: [web.apply, db.apply]}
`

func TestActionsAreParsed(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(acting))
	if problems != nil {
		t.Fatal(problems)
	}
	var parts []string
	for _, p := range app.Parts() {
		parts = append(parts, p.Name+" "+p.Source+" "+strings.Join(p.DependsOn, ","))
	}
	want := []string{"db db ", "web web db", "actions.backup backup ", "actions.check check ", "actions.migrate migrate db", "actions.restore restore db"}
	if !slices.Equal(parts, want) {
		t.Errorf("the parts are %q", parts)
	}
	check, _ := app.Action("check")
	restore, _ := app.Action("restore")
	if !slices.Equal(check.After, []string{"db.apply", "web.apply"}) || restore.Timeout.String() != "1h30m0s" || !restore.Params[0].Required || restore.Params[1].Required {
		t.Errorf("the actions are %+v and %+v", check, restore)
	}
	if _, err := restore.CheckParams(map[string]any{"form": "x"}); fairlead.CodeOf(err) != "invalid-params" || !strings.Contains(err.Error(), "2 params are wrong") {
		t.Errorf("wrong params return %v", err)
	}
	params, err := restore.CheckParams(map[string]any{"from": "monday"})
	if err != nil {
		t.Fatal(err)
	}
	scope := appspec.Scope{Params: params, Outputs: func(_, _ string) (appspec.Resolved, bool) {
		return appspec.Resolved{Value: "db://x", Sensitive: true}, true
	}}
	got, sensitive, err := restore.Vars["from"].Resolve(scope)
	if err != nil || got != "monday in db://x" || !sensitive {
		t.Errorf("the variable is %v, sensitive %t, %v", got, sensitive, err)
	}
}

// The canonical form is read again, and does not depend on the order in the file. An app without actions has the form
// that it had before actions existed, so its versions keep their identifiers.
func TestCanonicalFormOfActions(t *testing.T) {
	canonical := func(src string) string {
		t.Helper()
		app, problems := appspec.Parse("app.yaml", []byte(src))
		if problems != nil {
			t.Fatal(problems)
		}
		data, err := app.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		again, err := appspec.FromCanonical(data)
		if err != nil || !reflect.DeepEqual(again, app) {
			t.Fatalf("read again, the app is %+v, %v", again, err)
		}
		return string(data)
	}
	first := canonical(acting)
	if other := canonical(strings.Replace(strings.Replace(acting, "[web.apply, db.apply]", "[db.apply, web.apply]", 1), "90m", "1h30m", 1)); other != first {
		t.Errorf("the order in the file changes the form:\n%s\n%s", first, other)
	}
	bare, _, _ := strings.Cut(acting, "actions:")
	if text := canonical(bare); strings.Contains(text, "actions") {
		t.Errorf("an app without actions has the form %s", text)
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal([]byte(first), &doc); err != nil || !strings.HasPrefix(string(doc["actions"]), `[{"name":"backup"`) {
		t.Errorf("the actions are %s, %v", doc["actions"], err)
	}
}

func TestWrongActionsAreRefusedWithTheirPlace(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"a type that no action has":              {"type: script\n    source: ./backup", "type: terraform\n    source: ./backup", `19:11: "terraform" is not a type of action`},
		"a source outside of the app":            {"./backup", "../backup", `20:13: the source "../backup" leaves the app's folder`},
		"no source":                              {"    source: ./backup\n", "", `18:3: actions.backup lacks the field "source"`},
		"an unknown field":                       {"timeout: 90m", "timeot: 90m", `17:5: actions.restore has no field "timeot"`},
		"a name that is not allowed":             {"  backup:", "  Back_up:", `"Back_up" is not a valid action name`},
		"a param of an unknown type":             {"list(string)", "lists", `"lists" is not a type of param`},
		"a default of another type":              {"default: [b, a]", "default: 1", `the default of param "keys" wants a list(string)`},
		"a param with the group of an input":     {"{description: Time of the backup.}", "{group: backups}", `13:7: the param "from" has a group, a giver or a generated value`},
		"a param of the customer":                {"{description: Time of the backup.}", "{from: customer}", `has a group, a giver or a generated value, which only inputs have`},
		"a param that is not declared":           {"${params.keys}", "${params.key}", `refers to a param that is not declared`},
		"a param in a component":                 {`url: "${components.db.outputs.url}"}}`, `url: "${params.from}"}}`, `and only an action has params`},
		"an input that is not declared":          {"${inputs.size}", "${inputs.sise}", `refers to an input that is not declared`},
		"a list in a text":                       {`"${params.keys}"`, `"x ${params.keys}"`, `is a list(string), which cannot be part of a text`},
		"an unknown role":                        {"role: provision", "role: deprovision", `"deprovision" is not a role of an action`},
		"no timeout":                             {"90m", "0s", `wants a time such as`},
		"a timeout of days":                      {"90m", "48h", `the timeout 48h0m0s is not a number of seconds up to 24h0m0s`},
		"a wrong cron expression":                {"0 3 * * *", "0 3 * *", `21:22: "0 3 * *" is not a cron expression`},
		"a time zone that does not exist":        {"Europe/Berlin", "Europe/Berln", `21:45: "Europe/Berln" is not the name of a time zone`},
		"no time zone":                           {", timezone: Europe/Berlin", "", `timezone`},
		"a required param with a schedule":       {"timeout: 90m", `schedule: {cron: "0 3 * * *", timezone: UTC}`, `the param "from" is required, but the action also runs by itself`},
		"a required param with a hook":           {"timeout: 90m", `after: [db.apply]`, `the param "from" is required, but the action also runs by itself`},
		"an operation that no component has":     {"before: [web.apply]", "before: [web.plan]", `26:14: "web.plan" is not an operation of a component`},
		"a component without an operation":       {"before: [web.apply]", "before: [web]", `"web" is not an operation of a component`},
		"a component that is not declared":       {"before: [web.apply]", "before: [wep.apply]", `there is no component "wep"`},
		"an operation that is listed twice":      {"before: [web.apply]", "before: [web.apply, web.apply]", `is listed twice`},
		"before and after":                       {"before: [web.apply]", "before: [web.apply]\n    after: [web.apply]", `the action "migrate" runs before and after operations`},
		"an action that needs what waits for it": {"before: [web.apply]", "before: [db.apply]", `these components depend on each other in a cycle: actions.migrate -> db -> actions.migrate`},
		"an output of a component that is gone":  {"before: [web.apply]", "after: [db.destroy]", `which has no outputs then`},
		"a cycle through another component":      {`{url: "${components.db.outputs.url}"}` + "\n    before: [web.apply]", `{url: "${components.web.outputs.url}"}` + "\n    before: [db.apply]", `cycle`},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Count(acting, c.old) == 0 {
				t.Fatalf("the app has no %q", c.old)
			}
			_, problems := appspec.Parse("app.yaml", []byte(strings.Replace(acting, c.old, c.new, 1)))
			var lines []string
			for _, p := range problems {
				lines = append(lines, p.String())
			}
			if text := strings.Join(lines, "\n"); len(problems) != 1 || !strings.Contains(text, c.want) {
				t.Errorf("the problems are\n%s\nwant one with %s", text, c.want)
			}
		})
	}
}

// The folder of an action needs the executable, and the outputs that it uses must exist.
func TestFoldersOfActionsAreChecked(t *testing.T) {
	files := fstest.MapFS{
		"app.yaml": {Data: []byte(acting)}, "db/main.tf": {Data: []byte("output \"address\" {\n  value = 1\n}\n")},
		"web/main.tf": {Data: []byte("variable \"url\" {}\n")}, "restore/run": {Mode: 0o755}, "backup/run": {Mode: 0o644}, "migrate/run": {Mode: 0o755},
	}
	_, problems := appspec.Load(files)
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		`the source "./backup" of action "backup" holds no executable file "run"`, `the source "./check" of action "check" does not exist`,
		`25:18: the module of component "db" has no output "url"`, `15:37: the module of component "db" has no output "url"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no problem has %s:\n%s", want, text)
		}
	}
}
