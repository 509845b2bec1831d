package view

import (
	"encoding/json"
	"testing"
)

// A sensitive input looks the same before and after an update. It must still be
// shown as changed.
func TestUpdateShowsEachInputsChange(t *testing.T) {
	for _, tt := range []struct{ before, now, want string }{
		{`2`, `5`, "2 → 5"},
		{``, `"a"`, "default → a"},
		{`[1,2]`, ``, "[1,2] → default"},
		{`5`, `5`, "5, unchanged"},
		{``, ``, "default, unchanged"},
		{`"(sensitive)"`, `"(sensitive)"`, "(sensitive), changed"},
		{``, `"(sensitive)"`, "default → (sensitive)"},
		{`"a\u001bb"`, `"b"`, `"a\u001bb" → b`},
	} {
		var before, now json.RawMessage
		if tt.before != "" {
			before = json.RawMessage(tt.before)
		}
		if tt.now != "" {
			now = json.RawMessage(tt.now)
		}
		if got := inputChange(before, now); got != tt.want {
			t.Errorf("from %q to %q: %q, want %q", tt.before, tt.now, got, tt.want)
		}
	}
}
