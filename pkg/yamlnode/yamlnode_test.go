package yamlnode_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// plain returns the value of a node without its places.
func plain(n yamlnode.Node) any {
	switch n.Shape {
	case yamlnode.List:
		list := []any{}
		for _, item := range n.Items {
			list = append(list, plain(item))
		}
		return list
	case yamlnode.Map:
		fields := map[string]any{}
		for _, f := range n.Fields {
			fields[f.Key] = plain(f.Value)
		}
		return fields
	}
	return n.Value
}

func TestYAMLAndJSONHaveValuesAndPlaces(t *testing.T) {
	yaml, problems := yamlnode.Read([]byte("# of mine\na: [1, x]\nb:\n  c: true\n  d:\n"))
	if problems != nil {
		t.Fatal(problems)
	}
	fromJSON, problems := yamlnode.ReadJSON([]byte("{\"a\": [1, \"x\"],\n\t\"b\" : {\"c\": true, \"d\": null}}\n"))
	if problems != nil {
		t.Fatal(problems)
	}
	want := map[string]any{"a": []any{json.Number("1"), "x"}, "b": map[string]any{"c": true, "d": nil}}
	if got := plain(yaml); !reflect.DeepEqual(got, want) {
		t.Errorf("YAML: got %v, want %v", got, want)
	}
	if got := plain(fromJSON); !reflect.DeepEqual(got, want) {
		t.Errorf("JSON: got %v, want %v", got, want)
	}
	places := func(n yamlnode.Node) string {
		b := n.Fields[1]
		return fmt.Sprint([]yamlnode.Place{n.Fields[0].Place, n.Fields[0].Value.Items[1].Place, b.Place, b.Value.Fields[0].Place, b.Value.Fields[0].Value.Place})
	}
	if got, want := places(yaml), "[{2 1 } {2 8 } {3 1 } {4 3 } {4 6 }]"; got != want {
		t.Errorf("YAML: places %s, want %s", got, want)
	}
	if got, want := places(yaml.In("part.yaml")), "[{2 1 part.yaml} {2 8 part.yaml} {3 1 part.yaml} {4 3 part.yaml} {4 6 part.yaml}]"; got != want || places(yaml) == want {
		t.Errorf("YAML of another file: places %s, want %s, and the node unchanged", got, want)
	}
	if got, want := places(fromJSON), "[{1 2 } {1 11 } {2 2 } {2 9 } {2 14 }]"; got != want {
		t.Errorf("JSON: places %s, want %s", got, want)
	}
}

func TestInvalidJSONHasOneProblemWithAPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "1:1: the text is not JSON here",
		"{":                             "1:2: the text is not JSON here",
		"{\n  \"é\": tru}":              "2:8: the text is not JSON here",
		"[1,\n2] 3":                     "2:",
		`{"a":1e999}`:                   `1:6: the number "1e999" has more than 150 digits`,
		"\"\xff\"":                      "1:1: the text is not UTF-8",
		strings.Repeat("[", 1000):       "1:26: lists and maps are nested deeper than 20",
		strings.Repeat(`{"a":`, 100000): "lists and maps are nested deeper than 20",
	} {
		n, problems := yamlnode.ReadJSON([]byte(text))
		if len(problems) != 1 || !strings.Contains(problems[0].String(), want) || n.Shape != yamlnode.Scalar {
			t.Errorf("%.40q: problems %v, want %s", text, problems, want)
		}
	}
}

// ReadJSON reads the same values as encoding/json, but numbers keep their digits.
func TestReadJSONMatchesEncodingJSON(t *testing.T) {
	leaf := rapid.OneOf(rapid.Just(any(nil)), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.String(), func(s string) any { return s }), rapid.Map(rapid.Int64(), func(i int64) any { return json.Number(fmt.Sprint(i)) }))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(value(depth-1), 0, 3), func(l []any) any { return append([]any{}, l...) }),
			rapid.Map(rapid.MapOfN(rapid.String(), value(depth-1), 0, 3), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		want := value(3).Draw(t, "value")
		text, err := json.MarshalIndent(want, "", rapid.SampledFrom([]string{"", "\t", "  "}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		n, problems := yamlnode.ReadJSON(text)
		if problems != nil {
			t.Fatalf("%s: %v", text, problems)
		}
		again, err := json.Marshal(plain(n))
		if err != nil {
			t.Fatal(err)
		}
		first, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(first) {
			t.Fatalf("ReadJSON reads %s as %s", first, again)
		}
	})
}

func TestNearestFindsMisspeltNames(t *testing.T) {
	known := []string{"cluster", "location", "project_id"}
	for got, want := range map[string]string{
		"locaton": "location", "Location": "location", "cluster": "cluster", "projectid": "project_id", "clutser": "cluster", "zone": "", "": "", strings.Repeat("l", 1000): "",
	} {
		if name := yamlnode.Nearest(got, known); name != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", got, name, want)
		}
	}
	if hint := yamlnode.DidYouMean("zone", "fields", known); hint != "The fields are: cluster, location, project_id." {
		t.Errorf("hint %q", hint)
	}
}

func TestFinishSortsAndLimitsProblems(t *testing.T) {
	var ps []yamlnode.Problem
	for i := range 300 {
		ps = append(ps, yamlnode.Problem{File: "f", Line: 300 - i/2, Column: 1, Code: "c", Message: "m"})
	}
	ps = yamlnode.Finish(ps)
	if len(ps) != yamlnode.MaxProblems+1 || ps[0].Line != 151 || ps[1].Line != 152 || ps[yamlnode.MaxProblems].Message != "50 more problems are not shown" {
		t.Errorf("got %d problems, from %v to %v", len(ps), ps[0], ps[len(ps)-1])
	}
	if text := yamlnode.Quote("\x1b[31m\u202e" + strings.Repeat("x", 100)); strings.ContainsAny(text, "\x1b\u202e") || len(text) > 100 {
		t.Errorf("Quote returns %s", text)
	}
}
