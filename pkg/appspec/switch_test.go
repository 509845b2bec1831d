package appspec_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
)

func TestSwitchHasOneCanonicalSpelling(t *testing.T) {
	text := wrap("inputs:\n  on: {type: bool, default: true}\ncomponents:\n  a: {type: script, source: a, enabled: '${ inputs.on }'}\n" +
		"  b: {type: script, source: b, enabled: '${inputs.on}', vars: {x: '${components.a.outputs.y}'}}\n  c: {type: script, source: c, depends_on: [a]}\n")
	app, problems := appspec.Parse("app.yaml", []byte(text))
	if problems != nil {
		t.Fatal(problems)
	}
	stored := canonical(t, app)
	if strings.Count(stored, `"enabled":"${inputs.on}"`) != 2 {
		t.Errorf("the canonical form is %s", stored)
	}
	again, err := appspec.FromCanonical([]byte(stored))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := appspec.FromCanonical([]byte(strings.Replace(stored, "${inputs.on}", "${ inputs.on }", 1))); err == nil {
		t.Error("another spelling of the switch is accepted, so one app has two addresses")
	}
	for value, want := range map[any]int{true: 0, false: 2, nil: 0} {
		if off := again.Off(func(string) any { return value }); len(off) != want || off["c"] {
			t.Errorf("with the input %v the components %v are off", value, off)
		}
	}
}
