package events_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/events"
)

func given(values map[string]string) map[string]events.SpecVar {
	vars := map[string]events.SpecVar{}
	for name, v := range values {
		vars[name] = events.SpecVar{Value: json.RawMessage(v), Sensitive: name == "password"}
	}
	return vars
}

func TestChangedListsDifferences(t *testing.T) {
	before := map[string]string{"size": "1", "password": `"s3cret"`, "zones": `["a"]`}
	in := events.InputsOf([]byte("salt"), "sha256:1", given(before))
	b, err := json.Marshal(in)
	if err != nil || bytes.Contains(b, []byte("s3cret")) {
		t.Fatalf("%s, %v", b, err)
	}
	var kept events.Inputs
	if err := json.Unmarshal(b, &kept); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		source string
		vars   map[string]string
		want   []string
	}{
		"nothing":                 {"sha256:1", before, nil},
		"the source":              {"sha256:2", before, []string{"source"}},
		"a secret":                {"sha256:1", map[string]string{"size": "1", "password": `"other"`, "zones": `["a"]`}, []string{"vars.password"}},
		"a new variable":          {"sha256:1", map[string]string{"size": "1", "password": `"s3cret"`, "zones": `["a"]`, "a": "null"}, []string{"vars.a"}},
		"an environment variable": {"sha256:1", map[string]string{"size": "1", "password": `"s3cret"`, "zones": `["a"]`, "env.A": `"x"`, "options.b": `"x"`}, []string{"env.A", "options.b"}},
		"a removed variable":      {"sha256:1", map[string]string{"size": "1", "zones": `["a"]`}, []string{"vars.password"}},
		"two swapped values":      {"sha256:1", map[string]string{"size": `["a"]`, "password": `"s3cret"`, "zones": "1"}, []string{"vars.size", "vars.zones"}},
		"everything":              {"sha256:2", nil, []string{"source", "vars.password", "vars.size", "vars.zones"}},
	} {
		if got := kept.Changed(tc.source, given(tc.vars)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	if got := (events.Inputs{}).Changed("", nil); got != nil {
		t.Errorf("Changed of empty inputs returns %v", got)
	}
	again := events.InputsOf([]byte("other"), "sha256:1", given(before))
	if bytes.Equal(again.Vars["password"], in.Vars["password"]) {
		t.Error("two salts produce the same digest")
	}
}
