package appspec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func parseValue(t testing.TB, source string) appspec.Value {
	t.Helper()
	var v appspec.Value
	if err := json.Unmarshal([]byte(source), &v); err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return v
}

func scope() appspec.Scope {
	outputs := map[string]appspec.Resolved{
		"db.port":  {Value: 5432.0},
		"db.token": {Value: "hush", Sensitive: true},
		"db.nodes": {Value: []any{map[string]any{"host": "a", "up": true}, map[string]any{"host": "b", "a key": nil}}},
	}
	return appspec.Scope{
		Inputs: map[string]appspec.Resolved{
			"size":   {Value: json.Number("123456789012345678901234567890")},
			"on":     {Value: true},
			"empty":  {},
			"secret": {Value: "s3cret", Sensitive: true},
		},
		Install: map[string]string{"name": "acme"},
		Outputs: func(c, o string) (appspec.Resolved, bool) { r, ok := outputs[c+"."+o]; return r, ok },
	}
}

func TestValuesResolve(t *testing.T) {
	for _, c := range []struct{ consequence, source, want string }{
		{"a number keeps every digit", `"${inputs.size}"`, `123456789012345678901234567890`},
		{"a number in a text is its digits", `"n=${inputs.size}"`, `"n=123456789012345678901234567890"`},
		{"spaces inside the braces are allowed", `"${ inputs.on }"`, `true`},
		{"a bool in a text is true or false", `"${inputs.on}/${install.name}"`, `"true/acme"`},
		{"null as the whole value stays null", `"${inputs.empty}"`, `null`},
		{"an output keeps its type", `"${components.db.outputs.port}"`, `5432`},
		{"a path selects in lists and maps", `"${components.db.outputs.nodes[1].host}"`, `"b"`},
		{"a key may be any text", `"${components.db.outputs.nodes[1][\"a key\"]}"`, `null`},
		{"a list becomes an item of a list", `["x","${components.db.outputs.nodes}"]`, `["x",[{"host":"a","up":true},{"a key":null,"host":"b"}]]`},
		{"an escape is a literal", `"$${inputs.size}"`, `"${inputs.size}"`},
		{"a dollar alone is a dollar", `"$5 $$ $"`, `"$5 $$ $"`},
		{"a secret makes the text secret", `"x-${inputs.secret}"`, `"x-s3cret" sensitive`},
		{"a nested secret makes the whole value secret", `{"a":[{"b":"${components.db.outputs.token}"}]}`, `{"a":[{"b":"hush"}]} sensitive`},
		{"literals stay as they are", `{"a":[1,true,null,"x"]}`, `{"a":[1,true,null,"x"]}`},
		{"a list in a text is refused", `"x ${components.db.outputs.nodes}"`, `error not-a-scalar: ${components.db.outputs.nodes} is a list, which cannot be part of a text`},
		{"null in a text is refused", `"x ${inputs.empty}"`, `error not-a-scalar: ${inputs.empty} is nothing (null), which cannot be part of a text`},
		{"a missing output is unresolved", `"x ${components.db.outputs.url}"`, `unresolved: ${components.db.outputs.url} cannot be resolved: component "db" has no output "url"`},
		{"an output of an undeployed component is unresolved", `["${components.web.outputs.url}"]`, `unresolved: ${components.web.outputs.url} cannot be resolved: component "web" has no output "url"`},
		{"a path to a missing item is unresolved", `"${components.db.outputs.nodes[2].host}"`, `unresolved: ${components.db.outputs.nodes[2].host} cannot be resolved: ${components.db.outputs.nodes} is a list without "2"`},
		{"a path into a secret does not show it", `"${inputs.secret.x}"`, `unresolved: ${inputs.secret.x} cannot be resolved: ${inputs.secret} is a string without "x"`},
		{"an unknown fact of the install is unresolved", `"${install.version}"`, `unresolved: ${install.version} cannot be resolved: the install's version is not known`},
	} {
		t.Run(c.consequence, func(t *testing.T) {
			v, sensitive, err := parseValue(t, c.source).Resolve(scope())
			var got string
			if unresolved, ok := errors.AsType[*appspec.UnresolvedError](err); ok {
				got = "unresolved: " + unresolved.Error()
			} else if err != nil {
				got = "error " + string(fairlead.CodeOf(err)) + ": " + err.Error()
			} else {
				data, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				got = string(data)
				if sensitive {
					got += " sensitive"
				}
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestResolvedValuesBelongToTheCaller(t *testing.T) {
	v := parseValue(t, `{"a":["x"]}`)
	first, _, err := v.Resolve(appspec.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	first.(map[string]any)["a"].([]any)[0] = "changed"
	if v.String() != `{"a":["x"]}` {
		t.Errorf("the value became %s", v)
	}
}

func TestReferencesAreListedInOrder(t *testing.T) {
	v := parseValue(t, `{"b":["${components.db.outputs.nodes[0].host}"],"a":"${inputs.x} ${install.id}"}`)
	want := []appspec.Reference{
		{Namespace: appspec.Inputs, Name: "x"},
		{Namespace: appspec.Install, Name: "id"},
		{Namespace: appspec.Components, Name: "db", Output: "nodes", Path: []string{"0", "host"}},
	}
	if got := v.References(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v", got)
	}
}

func TestLiteralIsNeverReadAsReference(t *testing.T) {
	v, err := appspec.Literal(map[string]any{"a": "${inputs.x} $${y}"})
	if err != nil {
		t.Fatal(err)
	}
	again := parseValue(t, v.String())
	got, _, err := again.Resolve(appspec.Scope{})
	if err != nil || fmt.Sprint(got) != "map[a:${inputs.x} $${y}]" || len(again.References()) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// jsonValue generates JSON values whose strings hold the special characters of
// references.
func jsonValue(depth int) *rapid.Generator[any] {
	text := rapid.Custom(func(t *rapid.T) any {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"$", "{", "}", "a", " ", ".", "[0]", `["`, `"]`, "\\", "é", "\u202e", "${inputs.size}", "${components.db.outputs.nodes[0].host}",
			`${inputs.m["a}${b"]}`, "$${", "inputs.",
		}), 0, 6).Draw(t, "text"), "")
	})
	scalar := rapid.OneOf(
		text, text,
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Float64(), func(f float64) any { return f }),
		rapid.Map(rapid.Int64(), func(i int64) any { return i }),
	)
	if depth == 0 {
		return scalar
	}
	inner := jsonValue(depth - 1)
	return rapid.OneOf(
		scalar,
		rapid.Map(rapid.SliceOfN(inner, 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-z]{1,2}`), inner, 0, 3), func(m map[string]any) any { return m }),
	)
}

func TestValuesSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source, err := json.Marshal(jsonValue(3).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		var first, second appspec.Value
		if json.Unmarshal(source, &first) != nil {
			return // not every text with a "${" is a reference
		}
		stored, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(stored, &second); err != nil {
			t.Fatalf("%s became %s: %v", source, stored, err)
		}
		if !reflect.DeepEqual(first, second) || first.String() != second.String() {
			t.Fatalf("%s became %s, then %s", source, first, second)
		}
	})
}

func TestLiteralsResolveToThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := jsonValue(3).Draw(t, "value")
		v, err := appspec.Literal(drawn)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var again appspec.Value
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatal(err)
		}
		a, _, errA := v.Resolve(appspec.Scope{})
		b, sensitive, errB := again.Resolve(appspec.Scope{})
		if errA != nil || errB != nil || sensitive || !reflect.DeepEqual(a, b) {
			t.Fatalf("%v became %v (%v, %v)", a, b, errA, errB)
		}
	})
}

func TestNumbersHaveOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "0.0e5": "0", "1": "1", "+1": "1", "1.0": "1", "1.": "1", ".5": "0.5", "-.50": "-0.5", "100": "100", "1e2": "100",
		"12.50": "12.5", "1e-3": "0.001", "0.000001": "0.000001", "1e-7": "1e-7", "1.50e-10": "1.5e-10", "1e40": "1e40",
		"123456789012345678901234567890": "123456789012345678901234567890", "0x1F": "31", "0o17": "15",
	} {
		app, problems := appspec.Parse("app.yaml", []byte("fairlead: v1\nname: a\ncomponents:\n  a: {type: terraform, source: a, vars: {n: "+text+"}}\n"))
		if problems != nil {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		if got := app.Components[0].Vars["n"].String(); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

func TestCanonicalNumberKeepsItsValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Draw(t, "f")
		v, err := appspec.Literal(f)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := v.Resolve(appspec.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		if back, err := got.(json.Number).Float64(); err != nil || back != f {
			t.Fatalf("%v became %v: %v", f, got, err)
		}
	})
}

func TestDeepValuesAreRefused(t *testing.T) {
	var v appspec.Value
	if err := json.Unmarshal([]byte(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)), &v); err == nil {
		t.Error("9000 nested lists are accepted")
	}
}

// What remains in the spec of a job must resolve to the same value as before, and hold no secret.
func TestWithheldValueHoldsNoSecret(t *testing.T) {
	scope := appspec.Scope{
		Inputs:  map[string]appspec.Resolved{"size": {Value: json.Number("3")}, "password": {Value: "hunter2", Sensitive: true}, "text": {Value: "${inputs.password}"}},
		Install: map[string]string{"name": "acme"},
		Outputs: func(_, output string) (appspec.Resolved, bool) {
			return appspec.Resolved{Value: map[string]any{"${key}": "hunter2"}, Sensitive: output == "secret"}, true
		},
	}
	for source, want := range map[string]string{
		`"${inputs.password}"`:  `"${inputs.password}"`,
		`"${inputs.size}"`:      `3`,
		`"a ${install.name} b"`: `"a acme b"`,
		`"db://${inputs.password}@${install.name}:${inputs.size}/$${x}"`: `"db://${inputs.password}@acme:3/$${x}"`,
		`"${inputs.text}"`: `"$${inputs.password}"`,
		`{"a":["${inputs.text}${inputs.password}","${inputs.size}"]}`: `{"a":["$${inputs.password}${inputs.password}",3]}`,
		`"${components.db.outputs.plain}"`:                            `"${components.db.outputs.plain}"`,
		`"${components.db.outputs.secret[\"${key}\"]}"`:               `"${components.db.outputs.secret[\"${key}\"]}"`,
	} {
		var v appspec.Value
		if err := json.Unmarshal([]byte(source), &v); err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		left, err := v.Withhold(scope)
		if err != nil || left.String() != want {
			t.Errorf("%s becomes %s, want %s: %v", source, left, want, err)
			continue
		}
		before, _, err1 := v.Resolve(scope)
		var again appspec.Value
		err2 := json.Unmarshal([]byte(left.String()), &again)
		after, _, err3 := again.Resolve(scope)
		if errors.Join(err1, err2, err3) != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%s resolves to %v, and later to %v: %v", source, before, after, errors.Join(err1, err2, err3))
		}
	}
	missing := appspec.Value{}
	if err := json.Unmarshal([]byte(`"${inputs.none}"`), &missing); err != nil {
		t.Fatal(err)
	}
	if _, err := missing.Withhold(scope); err == nil {
		t.Error("a reference without a target is withheld")
	}
}
