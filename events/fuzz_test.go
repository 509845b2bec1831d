package events_test

import (
	"testing"

	"github.com/fairlead/fairlead/events"
)

// A statement of another program is read or refused; a statement that was read is of a build.
func FuzzParseStatement(f *testing.F) {
	f.Add([]byte(`{"_type":"https://in-toto.io/Statement/v1","predicateType":"https://slsa.dev/provenance/v1","subject":[{"name":"x","digest":{"sha256":"aa"}}],"predicate":{}}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if p, err := events.ParseStatement(payload); err != nil && p.Component != "" {
			t.Fatalf("a refused statement has the component %q", p.Component)
		}
	})
}
