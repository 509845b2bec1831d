package events_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/events"
)

// A reader of a spec must not find a short secret by trying all texts, and a step must notice each other value.
func TestDigestOfValuesIsKeyedByTheLease(t *testing.T) {
	values := []byte(`{"password":"hush"}`)
	ref := events.ValuesRef{Name: "inputs", Digest: events.ValuesDigest("lease-1", "inputs", values)}
	for name, c := range map[string]struct {
		lease, name, values string
		want                bool
	}{
		"the values that the spec names":       {"lease-1", "inputs", `{"password":"hush"}`, true},
		"another value":                        {"lease-1", "inputs", `{"password":"husk"}`, false},
		"no value":                             {"lease-1", "inputs", ``, false},
		"the values of another name":           {"lease-1", "last", `{"password":"hush"}`, false},
		"a reader without the attempt's lease": {"lease-2", "inputs", `{"password":"hush"}`, false},
		"the names run into the values":        {"lease-1", "inputs\n{", `"password":"hush"}`, false},
	} {
		r := events.ValuesRef{Name: c.name, Digest: ref.Digest}
		if got := r.Matches(c.lease, []byte(c.values)); got != c.want {
			t.Errorf("%s matches: %t", name, got)
		}
	}
}

// The field "value" with null in it would be a value for a step that does not know references.
func TestReferenceHasNoValueInTheSpec(t *testing.T) {
	b, err := json.Marshal(events.SpecVar{Sensitive: true, Refs: json.RawMessage(`"${inputs.password}"`)})
	if err != nil || bytes.Contains(b, []byte(`"value"`)) {
		t.Errorf("the variable is %s: %v", b, err)
	}
}
