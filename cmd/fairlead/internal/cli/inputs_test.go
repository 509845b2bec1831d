package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseInputsKeepsValues(t *testing.T) {
	const text = `
# what a customer writes
region: eu-west-1
id: 12345678901234567890123
share: 0.10
zip: "01234"
on: true
none: null
zones: [a, b]
tags:
  team: shop
  cost: {centre: 7}
1: one
motd: |
  two
  lines
`
	const want = `{"1":"one","id":12345678901234567890123,"motd":"two\nlines\n","none":null,"on":true,"region":"eu-west-1","share":0.1,"tags":{"cost":{"centre":7},"team":"shop"},"zip":"01234","zones":["a","b"]}`
	values, err := parseInputs([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(values)
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	again, err := parseInputs(got) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(again); string(got) != want {
		t.Errorf("from JSON: got %s", got)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n"} {
		if values, err := parseInputs([]byte(empty)); err != nil || len(values) != 0 {
			t.Errorf("%q: got %v, %v", empty, values, err)
		}
	}
}

func TestParseInputsRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a list":                           "- hunter2",
		"a text":                           "hunter2",
		"two documents":                    "a: hunter2\n---\nb: 1",
		"not YAML":                         "a: [hunter2",
		"a key twice":                      "a: hunter2\na: 2",
		"an anchor, which could multiply":  "a: &x hunter2\nb: *x",
		"a tag":                            "a: !!binary hunter2",
		"a merge":                          "a: {b: 1}\n<<: {c: hunter2}",
		"a key that is a list":             "? [a]\n: hunter2",
		"a map that is nested too deep":    strings.Repeat("a: {", 40) + strings.Repeat("}", 40),
		"a number that JSON does not have": "a: .inf",
	} {
		t.Run(name, func(t *testing.T) {
			values, err := parseInputs([]byte(text))
			if err == nil {
				t.Fatalf("got %v", values)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes a value: %v", err)
			}
		})
	}
}

func FuzzParseInputs(f *testing.F) {
	f.Add("a: [1, {b: c}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseInputs([]byte(text))
		if err != nil {
			return
		}
		if _, err := json.Marshal(values); err != nil {
			t.Errorf("%q results in invalid JSON: %v", text, err)
		}
	})
}
