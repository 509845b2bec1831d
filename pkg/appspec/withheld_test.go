package appspec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// typedValues are JSON values of all shapes.
var typedValues = []string{`null`, `"a"`, `1`, `1.5`, `true`, `[]`, `{}`, `["a"]`, `[1,2]`, `["a",1]`, `[null]`, `["a",null]`, `{"a":"b"}`, `{"a":1,"b":"c"}`, `[["a"],[]]`, `[["a"],[1]]`,
	`[[],{}]`, `{"a":[],"b":[1]}`, `{"a":{"b":["c"]}}`, `[[[["a"]]]]`, `[[[[[[["a"]]]]]]]`, `[[[[[[[[1]],[["a"]]]]]]]]`}

// A value that is not opened must be refused exactly if its type is wrong.
func TestTypesOfWithheldValuesAreCheckedAlike(t *testing.T) {
	types := []appspec.Type{"string", "number", "bool", "any", "list", "map"}
	for range 3 {
		for _, of := range types {
			for _, outer := range []string{"list", "map"} {
				typ, err := appspec.ParseType(outer + "(" + string(of) + ")")
				if err == nil {
					types = append(types, typ)
				}
			}
		}
	}
	for _, typ := range append(types, "list(list(list(list(list(list(string))))))", "list(list(list(list(list(list(list))))))") {
		app := appspec.App{Inputs: []appspec.Input{{Name: "in", Type: typ, Sensitive: true}}}
		for _, text := range typedValues {
			value := decodeJSON(t, text)
			if value == nil {
				continue // counts as not given
			}
			_, clear := app.CheckInputs(map[string]any{"in": value})
			got, hidden := app.CheckInputs(map[string]any{"in": appspec.Withheld{Type: appspec.TypeOf(value), Fingerprint: "p"}})
			if (clear == nil) != (hidden == nil) || fairlead.CodeOf(clear) != fairlead.CodeOf(hidden) {
				t.Errorf("%s for the type %s: opened %v, withheld %v", text, typ, clear, hidden)
			}
			if hidden == nil && got["in"] != (appspec.Resolved{Value: appspec.Withheld{Type: appspec.TypeOf(value), Fingerprint: "p"}, Sensitive: true}) {
				t.Errorf("the input is %+v", got["in"])
			}
		}
	}
}

func decodeJSON(t *testing.T, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func valueOf(t *testing.T, text string) appspec.Value {
	t.Helper()
	var v appspec.Value
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// scopeOf is a scope in which the secret, the other one and the map are withheld.
func scopeOf(secret string) appspec.Scope {
	hide := func(typ appspec.Type, fingerprint string, size int) appspec.Resolved {
		return appspec.Resolved{Value: appspec.Withheld{Type: typ, Fingerprint: fingerprint, Size: size}, Sensitive: true}
	}
	return appspec.Scope{Inputs: map[string]appspec.Resolved{"secret": hide("string", secret, 12), "other": hide("string", secret, 12), "map": hide("map(string)", "m", 100), "list": hide("list(none)", "l", 2),
		"old": hide("", "o", 0), "null": hide("null", "n", 4), "port": hide("number", "p", 4), "text": {Value: "a"}, "open": {Value: "a", Sensitive: true}}}
}

func TestOutlineHoldsWhatIsKnown(t *testing.T) {
	for _, tt := range []struct {
		value, want string // value, type and size
	}{
		{`"${inputs.text}"`, `"a" plain string 3`},
		{`"${inputs.open}-b"`, `"a-b" sensitive string 5`},
		{`"${inputs.secret}"`, `withheld sensitive string 12`},
		{`"db://${inputs.secret}@${inputs.text}:${inputs.port}"`, `withheld sensitive string 26`},
		{`["${inputs.text}",{"k":"${inputs.secret}"}]`, `withheld sensitive list 24`},
		{`"${inputs.map.user}"`, `withheld sensitive string 0`},
		{`"x${inputs.map.user}"`, `withheld sensitive string 3`},
		{`"${inputs.old[3].x}"`, `withheld sensitive  0`},
		{`{"a":1}`, `{"a":1} plain map(number) 7`},
	} {
		got, err := valueOf(t, tt.value).Outline(scopeOf("s"))
		shown := "withheld"
		if !got.Withheld {
			b, err := json.Marshal(got.Value)
			shown = string(b)
			if err != nil {
				t.Fatal(err)
			}
		} else if got.Value != nil {
			t.Errorf("%s: the value is %v", tt.value, got.Value)
		}
		sensitive := map[bool]string{true: "sensitive", false: "plain"}[got.Sensitive]
		if text := fmt.Sprintf("%s %s %s %d", shown, sensitive, got.Type, got.Size); err != nil || text != tt.want || got.Digest == "" {
			t.Errorf("%s: %s, %v; want %s", tt.value, text, err, tt.want)
		}
		if _, _, err := valueOf(t, tt.value).Resolve(scopeOf("s")); (err != nil) != got.Withheld {
			t.Errorf("%s is resolved without its secret: %v", tt.value, err)
		}
	}
}

func TestOutlineRefusesWrongTypes(t *testing.T) {
	for text, want := range map[string]string{
		`"x${inputs.map}"`:          "a map, which cannot be part of a text",
		`"x${inputs.list}"`:         "a list, which cannot be part of a text",
		`"x${inputs.null}"`:         "nothing (null), which cannot be part of a text",
		`"${inputs.secret.part}"`:   `is a string without "part"`,
		`"${inputs.list[0]}"`:       `is a list without "0"`,
		`"${inputs.map.user.name}"`: `is a string without "name"`,
		`"${inputs.none}"`:          `input "none" has no value`,
	} {
		_, err := valueOf(t, text).Outline(scopeOf("s"))
		_, missing := errors.AsType[*appspec.UnresolvedError](err)
		if err == nil || !strings.Contains(err.Error(), want) || !missing && fairlead.CodeOf(err) != fairlead.CodeNotAScalar {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]bool{`"${inputs.map}"`: false, `"${inputs.list}"`: false, `["${inputs.secret}"]`: false, `"${inputs.secret}"`: true, `"${inputs.null}"`: true, `"${inputs.old}"`: true, `"x${inputs.port}"`: true} {
		o, err := valueOf(t, text).Outline(scopeOf("s"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.EnvOutline(); (err == nil) != want {
			t.Errorf("%s as an environment variable: %v", text, err)
		}
	}
}

// A comparison must see each change: of a secret, of the text around it, of the reference, of what is secret.
func TestOutlinesOfDifferentValuesDiffer(t *testing.T) {
	seen := map[string]string{}
	add := func(name, text string, s appspec.Scope) {
		t.Helper()
		o, err := valueOf(t, text).Outline(s)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[o.Digest]; ok {
			t.Errorf("%s looks like %s", name, other)
		}
		seen[o.Digest] = name
	}
	for _, text := range []string{`"${inputs.secret}"`, `"${inputs.other}"`, `"x${inputs.secret}"`, `"${inputs.secret}x"`, `"${inputs.secret}${inputs.secret}"`, `["${inputs.secret}"]`, `{"a":"${inputs.secret}"}`,
		`{"b":"${inputs.secret}"}`, `"${inputs.map.a}"`, `"${inputs.map.b}"`, `"${inputs.text}"`, `"${inputs.open}"`, `"b"`, `["withheld","$${inputs.secret}","s"]`, `["text","x",["withheld","$${inputs.secret}","s"]]`, `"1"`, `1`, `null`, `"null"`, `[]`, `{}`, `[null]`} {
		add(text, text, scopeOf("s"))
	}
	add("another secret", `"${inputs.secret}"`, scopeOf("t"))
	add("another secret in a text", `"x${inputs.secret}"`, scopeOf("t"))
	one, err1 := valueOf(t, `"a-${inputs.secret}"`).Outline(scopeOf("s"))
	two, err2 := valueOf(t, `"${inputs.text}-${inputs.secret}"`).Outline(scopeOf("s"))
	if err1 != nil || err2 != nil || one.Digest != two.Digest {
		t.Errorf("one text from two templates is %s and %s: %v, %v", one.Digest, two.Digest, err1, err2)
	}
}
