package appspec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fairlead/fairlead/pkg/appspec"
	types "github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
	"github.com/fairlead/fairlead/tools/page"
)

const shopCanonical = `{"fairlead":"v1","name":"shop","description":"A shop with a database behind it.","inputs":[` +
	`{"name":"db-password","type":"string","required":true,"sensitive":true},` +
	`{"name":"public","type":"bool"},` +
	`{"name":"replicas","type":"number","default":2,"has_default":true},` +
	`{"name":"zones","type":"list(string)","default":["a","b"],"has_default":true}],"components":[` +
	`{"name":"cache","type":"terraform","source":"modules/cache"},` +
	`{"name":"database","type":"terraform","source":"modules/database","vars":{"password":"${inputs.db-password}"}},` +
	`{"name":"web","type":"terraform","source":"modules/web","depends_on":["cache","database"],"vars":{` +
	`"database_url":"${components.database.outputs.url}","name":"${install.name}-web","replicas":"${inputs.replicas}",` +
	`"settings":{"template":"$${kept}","zones":["${inputs.zones}","literal"]}}}]}`

// The canonical bytes are hashed and stored: a change of this golden text gives every
// app a new version.
func TestCanonicalFormIsStable(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	if got := canonical(t, app); got != shopCanonical {
		t.Errorf("got  %s\nwant %s", got, shopCanonical)
	}
	again, err := appspec.FromCanonical([]byte(shopCanonical))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(app, again) {
		t.Errorf("got %+v, want %+v", again, app)
	}
}

func TestOtherSpellingHasSameCanonicalForm(t *testing.T) {
	other := `
components:
  database: {vars: {password: "${ inputs.db-password }"}, source: modules/x/../database, type: terraform}
  web:
    vars:
      settings: {template: '$${kept}', "zones": ["${inputs.zones}", literal]}
      database_url: >-
        ${components.database.outputs.url}
      replicas: ${inputs.replicas}
      name: "${install.name}-web"
    depends_on: [database, cache]
    source: modules//web/
    type: terraform
  cache: {source: ./modules/cache, type: terraform, vars: {}, depends_on: }
description: A shop with a database behind it.
inputs:
  db-password: {sensitive: true, type: string, required: true}
  zones: {default: [a, 'b'], type: list( string )}
  replicas: {default: 2.0, type: number, required: false}
  public: {type: bool, required: false}
name: shop
fairlead: v1
`
	app, problems := appspec.Parse("app.yaml", []byte(other))
	if problems != nil {
		t.Fatal(problems)
	}
	if got := canonical(t, app); got != shopCanonical {
		t.Errorf("got  %s\nwant %s", got, shopCanonical)
	}
}

// A declaration has one canonical form, and an app without one keeps its address.
func TestDeclaredActionsAreCanonical(t *testing.T) {
	parse := func(aws string) (*appspec.App, string) {
		t.Helper()
		app, problems := appspec.Parse("app.yaml", []byte("fairlead: v1\nname: a\n"+aws+"components: {web: {type: terraform, source: web}}\n"))
		if problems != nil {
			t.Fatal(problems)
		}
		return app, canonical(t, app)
	}
	app, got := parse("aws: {actions: ['rds:Describe*', 's3:GetObject', 'rds:Describe*'], services: [sqs, s3]}\n")
	const want = `{"fairlead":"v1","name":"a","inputs":[],"aws":{"services":["s3","sqs"],"actions":["rds:Describe*","s3:GetObject"]},"components":[{"name":"web","type":"terraform","source":"web"}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := fmt.Sprint(app.AWSActions().All); got != "[rds:Describe* s3:* sqs:*]" {
		t.Errorf("the actions are %s", got)
	}
	if again, err := appspec.FromCanonical([]byte(want)); err != nil || !reflect.DeepEqual(app, again) {
		t.Errorf("got %+v, %v, want %+v", again, err, app)
	}
	none, plain := parse("")
	if got := none.AWSActions(); got.All != nil || got.Of != nil {
		t.Errorf("without a declaration the actions are %v", got)
	}
	app, got = parse("aws: {services: [s3], operations: {deprovision: {actions: ['rds:Delete*']}, provision: {services: [rds, lambda, rds]}, deploy: {}}}\n")
	const byOperation = `{"fairlead":"v1","name":"a","inputs":[],"aws":{"services":["s3"],"operations":{"provision":{"services":["lambda","rds"]},"deprovision":{"actions":["rds:Delete*"]}}},"components":[{"name":"web","type":"terraform","source":"web"}]}`
	if got != byOperation {
		t.Errorf("got  %s\nwant %s", got, byOperation)
	}
	if again, err := appspec.FromCanonical([]byte(byOperation)); err != nil || !reflect.DeepEqual(app, again) {
		t.Errorf("got %+v, %v, want %+v", again, err, app)
	}
	grants := app.AWSActions()
	if got := fmt.Sprint(grants.All, grants.Of); got != "[lambda:* rds:* s3:*] map[deploy:[s3:*] deprovision:[rds:Delete* s3:*] provision:[lambda:* rds:* s3:*]]" {
		t.Errorf("the actions by operation are %s", got)
	}
	for _, empty := range []string{"aws: {}\n", "aws:\n", "aws: {services: []}\n", "aws: {operations: {deploy: {}}}\n"} {
		if _, got := parse(empty); got != plain {
			t.Errorf("%q is %s, want %s", empty, got, plain)
		}
	}
	for name, edit := range map[string][2]string{
		"an empty declaration":      {want[strings.Index(want, `{"services`):strings.Index(want, `,"components`)], `{}`},
		"services in another order": {`"s3","sqs"`, `"sqs","s3"`},
		"a service given twice":     {`"s3","sqs"`, `"s3","s3","sqs"`},
		"a service of the account":  {`"s3","sqs"`, `"iam","s3","sqs"`},
	} {
		if _, err := appspec.FromCanonical([]byte(strings.Replace(want, edit[0], edit[1], 1))); fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAppSurvivesJSONRoundTrip(t *testing.T) {
	src := strings.Replace(shop, "default: 2\n", "default: 123456789012345678901234567890\n", 1)
	app, problems := appspec.Parse("app.yaml", []byte(src))
	if problems != nil {
		t.Fatal(problems)
	}
	data, err := json.Marshal(app)
	if err != nil {
		t.Fatal(err)
	}
	var again appspec.App
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*app, again) {
		t.Errorf("got %+v, want %+v", again, *app)
	}
}

func TestFromCanonicalRefusesInvalidBytes(t *testing.T) {
	edit := func(old, new string) string {
		t.Helper()
		if !strings.Contains(shopCanonical, old) {
			t.Fatalf("the canonical form does not contain %s", old)
		}
		return strings.Replace(shopCanonical, old, new, 1)
	}
	for name, c := range map[string]struct {
		data    string
		code    fairlead.Code
		message string
	}{
		"YAML instead of JSON":          {"fairlead: v1", "invalid-app", ""},
		"null":                          {"null", "unknown-version", ""},
		"an empty object":               {"{}", "unknown-version", ""},
		"more than one value":           {shopCanonical + "{}", "invalid-app", ""},
		"too many bytes":                {strings.Repeat(" ", appspec.MaxFileSize+1), "app-too-large", ""},
		"an unknown field":              {edit(`"name":"shop"`, `"name":"shop","x":1`), "invalid-app", ""},
		"an unknown field of an input":  {edit(`"name":"public"`, `"name":"public","x":1`), "invalid-app", ""},
		"the same app with white space": {edit(`"name":"shop"`, `"name": "shop"`), "not-canonical", ""},
		"the same name in another case": {edit(`"name":"shop"`, `"Name":"shop"`), "not-canonical", ""},
		"a name given twice":            {edit(`"name":"shop"`, `"name":"x","name":"shop"`), "not-canonical", ""},
		"a number in another spelling":  {edit(`"default":2`, `"default":2.0`), "not-canonical", ""},
		"a dependency left out":         {edit(`["cache","database"]`, `["cache"]`), "not-canonical", ""},
		"a source outside":              {edit(`modules/cache`, `../cache`), "invalid-app", "leaves"},
		"a reference to nothing":        {edit(`${inputs.replicas}`, `${inputs.replica}`), "invalid-app", "not declared"},
		"a default of another type":     {edit(`"default":2`, `"default":"2"`), "invalid-app", "wants a number"},
		"a cycle":                       {edit(`"source":"modules/cache"`, `"source":"modules/cache","depends_on":["web"]`), "invalid-app", "cache -> web -> cache"},
		"two components of a name":      {edit(`"name":"cache"`, `"name":"web"`), "invalid-app", "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			app, err := appspec.FromCanonical([]byte(c.data))
			if app != nil || err == nil || fairlead.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.message) {
				t.Errorf("got %v, %s %v", app, fairlead.CodeOf(err), err)
			}
			if _, ok := errors.AsType[*fairlead.Error](err); !ok {
				t.Errorf("%T is not a *fairlead.Error", err)
			}
		})
	}
}

func TestCommittedSchemaIsCurrent(t *testing.T) {
	page.HoldFile(t, "docs/app.schema.json", appspec.Schema())
	var rows strings.Builder
	for _, typ := range types.Types() {
		for _, o := range typ.Options {
			fmt.Fprintf(&rows, "| `%s` | `%s` | %s | %s |\n", typ.Name, o.Name, o.Kind, o.Doc)
		}
	}
	page.Hold(t, "docs/reference/app-file.md", "options", "| type | option | kind | |\n|---|---|---|---|\n"+rows.String())
}

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(appspec.Schema())))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("app.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("app.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestSchemaAgreesWithParser(t *testing.T) {
	schema := compiledSchema(t)
	for name, c := range map[string]struct {
		old, new string
		ok       bool
	}{
		"without a change":             {"", "", true},
		"an input without fields":      {"    sensitive: true\n", "", true},
		"another version":              {"fairlead: v1", "fairlead: v2", false},
		"an unknown field":             {"description:", "descriptoin:", false},
		"an unknown field of an input": {"default: 2", "defualt: 2", false},
		"an unknown type of input":     {"type: bool", "type: boolean", false},
		"an unknown type of component": {"type: terraform", "type: chart", false},
		"an invalid name":              {"  db-password:", "  db_password:", false},
		"an invalid variable name":     {"      name: ", "      1name: ", false},
		"dependencies as a text":       {"[cache]", "cache", false},
	} {
		t.Run(name, func(t *testing.T) {
			src := strings.Replace(shop, c.old, c.new, 1)
			value, ok := instance(src)
			if !ok {
				t.Fatal("the file is not YAML")
			}
			if err := schema.Validate(value); (err == nil) != c.ok {
				t.Errorf("schema: %v", err)
			}
			if _, problems := appspec.Parse("app.yaml", []byte(src)); (problems == nil) != c.ok {
				t.Errorf("parser: %v", problems)
			}
		})
	}
}

// instance returns the content of a file as a value for the schema validator. ok is
// false if the file is not YAML.
func instance(src string) (value any, ok bool) {
	n, problems := yamlnode.Read([]byte(src))
	return yamlnode.NewReader("", yamlnode.Rules{}).Plain(n), len(problems) == 0
}

// The schema refuses all files that the parser refuses, except files whose problem a
// schema cannot express.
func TestSchemaRefusesBadFiles(t *testing.T) {
	beyond := map[string]string{
		"fields and names given twice":                                                      "the validator sees each key once",
		"a cycle through a reference and a dependency":                                      "the cycle spans several components",
		"more actions than a boundary holds":                                                "the size is a sum",
		"two cycles":                                                                        "the cycles span several components",
		"references to nothing":                                                             "the declaration is in another place",
		"a list in a text":                                                                  "the type of the input is in another place",
		"groups of inputs that do not exist":                                                "the declaration is in another place",
		"switches that are no bool input":                                                   "the type of the input is in another place",
		"references to components that may be off":                                          "the switch is in another place",
		"a runner in the sandbox that nothing deploys":                                      "the component is in another place",
		"a runner in the sandbox that a script deploys":                                     "the type of the component is in another place",
		"a runner in the sandbox of another platform":                                       "the kind of the sandbox is in another place",
		"a runner in the sandbox of no kind":                                                "the file of a runner has a schema of its own",
		"a runner in the sandbox that an input switches off":                                "the component is in another place",
		"a runner in the sandbox that shows a secret or what comes after it":                "the input is in another place",
		"a sandbox of a component that does not exist":                                      "the component is in another place",
		"a sandbox that a script creates":                                                   "the type of the component is in another place",
		"a sandbox that an input switches off":                                              "the component is in another place",
		"a sandbox that needs what comes after it":                                          "the component is in another place",
		"a given output that a component would give":                                        "the form of a reference is not part of the schema",
		"an output that the sandbox is not given":                                           "the output is in another place",
		"a map of the sandbox in a text":                                                    "the output is in another place",
		"a sandbox that the app does not have":                                              "the sandbox is in another place",
		"a runner that cannot run on the sandbox":                                           "the kind of the sandbox is in another place",
		"an action before the sandbox that needs what comes after it":                       "the cycle spans several components",
		"options that the type does not have, of another kind, or that would show a secret": "an option's values depend on the type, which is another field",
	}
	schema := compiledSchema(t)
	for name, c := range badApps() {
		value, ok := instance(c.src)
		if !ok {
			continue // not YAML
		}
		reason, ok := beyond[name]
		if err := schema.Validate(value); (err == nil) != ok {
			t.Errorf("%s: schema: %v; reason why it cannot refuse the file: %q\n%s", name, err, reason, c.src)
		}
	}
}

// docs/reference/app-file.md has exactly one row for each code.
func TestReferenceListsEveryCode(t *testing.T) {
	want := []string{"cycle", "source-name", "source-path-too-long", "source-too-deep"} // the caller adds the prefix "source" of the last three
	list, err := os.ReadFile("../fairlead/code.go")
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	for _, m := range regexp.MustCompile(`(Code\w+) +Code = ("[a-z-]+")`).FindAllStringSubmatch(string(list), -1) {
		constants["fairlead."+m[1]] = m[2]
	}
	for _, name := range []string{"action.go", "chart.go", "check.go", "env.go", "generate.go", "git.go", "groups.go", "image.go", "include.go", "load.go", "module.go", "shared.go", "runner.go", "sandbox.go", "switch.go", "syntax.go", "oci.go", "parse.go", "reference.go", "registry.go", "problem.go", "../yamlnode/reader.go", "../yamlnode/yaml.go", "../yamlnode/control.go", "../yamlnode/problem.go", "../artifact/pack.go"} {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		src = regexp.MustCompile(`fairlead\.Code\w+`).ReplaceAllFunc(src, func(name []byte) []byte { return []byte(constants[string(name)]) })
		// The other codes are the only string literals in kebab-case.
		for _, m := range regexp.MustCompile(`"([a-z]+(?:-[a-z]+)+)"`).FindAllStringSubmatch(string(src), -1) {
			if m[1] != "invalid-app" && m[1] != "invalid-value" { // the code of the wrapping error, and a code that the reader uses only for runners
				want = append(want, m[1])
			}
		}
	}
	if len(want) < 30 {
		t.Fatalf("found only %d codes", len(want))
	}
	slices.Sort(want)
	compare(t, "codes", firstCells(page.Table(t, "docs/reference/app-file.md", "code", "meaning")), slices.Compact(want))
}

// docs/reference/app-file.md has exactly one row for each field of the schema.
func TestReferenceListsEveryField(t *testing.T) {
	type fields struct{ Properties map[string]any }
	var schema struct {
		fields
		Defs map[string]fields `json:"$defs"`
	}
	if err := json.Unmarshal(appspec.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	want := slices.Collect(maps.Keys(schema.Properties))
	for _, def := range schema.Defs {
		want = slices.AppendSeq(want, maps.Keys(def.Properties))
	}
	got := firstCells(page.Table(t, "docs/reference/app-file.md", "field", "", ""))
	got = append(got, firstCells(page.Table(t, "docs/reference/app-file.md", "field", "default", ""))...)
	compare(t, "fields", got, want)
}

// firstCells returns the code spans in the first cells of the rows.
func firstCells(rows [][]string) (names []string) {
	for _, row := range rows {
		names = append(names, page.Code(row[0])...)
	}
	return names
}

// compare fails the test unless got and want hold the same names, equally often.
func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("docs/reference/app-file.md has rows for the %s\n%q\nwant\n%q", what, got, want)
	}
}

func TestReferenceExampleIsValid(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/app-file.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	src, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/reference/app-file.md has no example")
	}
	if _, problems := appspec.Parse("app.yaml", []byte(src)); problems != nil {
		t.Error(problems)
	}
}
