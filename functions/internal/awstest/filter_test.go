package awstest

import (
	"encoding/json"
	"strings"
	"testing"
)

// patterns reads the filters of an event source. This file matches them as Lambda
// documents it, but supports only what the template uses: equality, prefixes, and the existence of a value.
func patterns(t testing.TB, criteria any) []map[string]any {
	t.Helper()
	if criteria == nil {
		return []map[string]any{{}}
	}
	var all []map[string]any
	for _, f := range criteria.(map[string]any)["Filters"].([]any) {
		var p map[string]any
		if err := json.Unmarshal([]byte(f.(map[string]any)["Pattern"].(string)), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func matchesAny(filters []map[string]any, record json.RawMessage) bool {
	var v map[string]any
	if json.Unmarshal(record, &v) != nil {
		return false
	}
	for _, f := range filters {
		if matches(f, v) {
			return true
		}
	}
	return false
}

func matches(pattern map[string]any, v map[string]any) bool {
	for name, want := range pattern {
		switch want := want.(type) {
		case map[string]any:
			inner, ok := v[name].(map[string]any)
			if !ok || !matches(want, inner) {
				return false
			}
		case []any:
			if !oneOf(want, v[name]) {
				return false
			}
		}
	}
	return true
}

func oneOf(want []any, have any) bool {
	for _, w := range want {
		if rule, ok := w.(map[string]any); ok {
			if rule["exists"] == true && have != nil {
				return true
			}
			prefix, _ := rule["prefix"].(string)
			text, isText := have.(string)
			if isText && prefix != "" && strings.HasPrefix(text, prefix) {
				return true
			}
			continue
		}
		if w == have {
			return true
		}
	}
	return false
}

// Only a new version of an item with a note goes to the audit.
func TestStreamFilterPassesNotes(t *testing.T) {
	tmpl := readTemplate(t, controlTemplate)
	filters := patterns(t, tmpl.Resources["AuditSource"].Properties["FilterCriteria"])
	for name, row := range map[string]struct {
		record string
		want   bool
	}{
		"a new item with a note": {`{"eventName":"INSERT","dynamodb":{"NewImage":{"pk":{"S":"x"},"n":{"B":"e30="}}}}`, true},
		"a change with a note":   {`{"eventName":"MODIFY","dynamodb":{"NewImage":{"n":{"B":"e30="}},"OldImage":{}}}`, true},
		"a change without one":   {`{"eventName":"MODIFY","dynamodb":{"NewImage":{"pk":{"S":"x"}},"OldImage":{"n":{"B":"e30="}}}}`, false},
		"a deletion":             {`{"eventName":"REMOVE","dynamodb":{"OldImage":{"n":{"B":"e30="}}}}`, false},
	} {
		if got := matchesAny(filters, json.RawMessage(row.record)); got != row.want {
			t.Errorf("%s: the filter passes it: %v, want %v", name, got, row.want)
		}
	}
}

// Lambda never dispatches a record that the template's filter rejects, so a mistake
// in the filter causes no error. Only wake-ups and events would be missing.
func TestStreamFilterPassesDispatchableRecords(t *testing.T) {
	tmpl := readTemplate(t, controlTemplate)
	filters := patterns(t, tmpl.Resources["DispatchSource"].Properties["FilterCriteria"])
	record := func(event, pk, sk string) json.RawMessage {
		b, err := json.Marshal(map[string]any{"eventName": event, "dynamodb": map[string]any{"Keys": map[string]any{"pk": map[string]any{"S": pk}, "sk": map[string]any{"S": sk}}}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tt := range []struct {
		name          string
		event, pk, sk string
		want          bool
	}{
		{"new job", "INSERT", "JOB#job_1", "JOB", true},
		{"changed deployment", "MODIFY", "DEPLOYMENT#dep_1", "DEPLOYMENT", true},
		{"summary of a job", "INSERT", "JOB#job_1", "SUMMARY#1", false},
		{"expired record", "REMOVE", "JOB#job_1", "JOB", false},
		{"heartbeat of a session", "MODIFY", "RUNNER#run_1", "SESSION#ses_1", false},
	} {
		if got := matchesAny(filters, record(tt.event, tt.pk, tt.sk)); got != tt.want {
			t.Errorf("%s: the filter passes it: %v, want %v", tt.name, got, tt.want)
		}
	}
}
