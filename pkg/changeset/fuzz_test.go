package changeset_test

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// A stored change set is read the same again after it was written: its digest is what a person approved.
func FuzzParse(f *testing.F) {
	for _, text := range []string{`{"changes":[{"address":"a","action":"create","after":{"n":12345678901234567890}}]}`, `{"resource_changes":[]}`, `{}`, `null`, `[]`, `{"changes":null}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		set := changeset.Parse(text)
		if set == nil {
			return
		}
		once, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		again := changeset.Parse(once)
		if again == nil {
			t.Fatalf("%s is not read", once)
		}
		twice, err := json.Marshal(again)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("%s is %s after it was read: %v", once, twice, err)
		}
	})
}
