package events_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/events"
)

func given(names ...string) map[string]events.SpecVar {
	vars := map[string]events.SpecVar{}
	for _, name := range names {
		vars[name] = events.SpecVar{Value: json.RawMessage(`"the value of ` + name + `"`), Sensitive: name == "password"}
	}
	return vars
}

func TestChangedListsDifferences(t *testing.T) {
	for name, tc := range map[string]struct {
		same   map[string]bool
		source string
		vars   map[string]events.SpecVar
		want   []string
	}{
		"nothing":                 {map[string]bool{"size": true, "password": true}, "sha256:1", given("size", "password"), nil},
		"the source":              {map[string]bool{"size": true}, "sha256:2", given("size"), []string{"source"}},
		"a secret":                {map[string]bool{"size": true, "password": false}, "sha256:1", given("size", "password"), []string{"vars.password"}},
		"a new variable":          {map[string]bool{"size": true}, "sha256:1", given("size", "a"), []string{"vars.a"}},
		"an environment variable": {map[string]bool{"size": true, "options.b": false}, "sha256:1", given("size", "env.A", "options.b"), []string{"env.A", "options.b"}},
		"the image":               {map[string]bool{"job.image": false}, "sha256:1", given("job.image"), []string{"image"}},
		"a removed variable":      {map[string]bool{"size": true, "password": true}, "sha256:1", given("size"), []string{"vars.password"}},
		"the first variable":      {nil, "sha256:1", given("size"), []string{"vars.size"}},
		"everything":              {map[string]bool{"size": true, "password": true}, "sha256:2", nil, []string{"source", "vars.password", "vars.size"}},
	} {
		b, err := json.Marshal(events.Inputs{Source: "sha256:1", Same: tc.same})
		if err != nil {
			t.Fatal(err)
		}
		var kept events.Inputs
		if err := json.Unmarshal(b, &kept); err != nil {
			t.Fatal(err)
		}
		if got := kept.Changed(tc.source, tc.vars); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	if got := (events.Inputs{}).Changed("", nil); got != nil {
		t.Errorf("Changed of empty inputs returns %v", got)
	}
}

// A runner is updated before its control plane.
func TestInputsOfAnEarlierControlPlaneAreCompared(t *testing.T) {
	digest := func(name, value string) []byte {
		h := hmac.New(sha256.New, []byte("salt"))
		h.Write([]byte(name + "\n" + value))
		return h.Sum(nil)
	}
	in := events.Inputs{Salt: []byte("salt"), Source: "sha256:1", Vars: map[string][]byte{"size": digest("size", `"the value of size"`), "password": digest("password", `"old"`), "gone": digest("gone", "1")}}
	if got, want := in.Changed("sha256:1", given("size", "password", "new")), []string{"vars.gone", "vars.new", "vars.password"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
