package control_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
)

// declared are the functions' environments by the logical id of the function.
var declared = map[string]any{
	"ControlAPI": &config.ControlAPI{}, "RunnerAPI": &config.RunnerAPI{}, "Dispatch": &config.Dispatch{},
	"Sweep": &config.Sweep{}, "LogIndex": &config.LogIndex{}, "Webhook": &config.Webhook{},
}

// A variable that a main reads and the stack does not set fails at the first
// request; one that it sets and nobody reads misleads whoever debugs.
func TestEnvironmentIsWhatIsDeclared(t *testing.T) {
	seen := 0
	for id, resource := range synth(t).template.Resources {
		if resource.Type != "AWS::Lambda::Function" {
			continue
		}
		seen++
		cfg, ok := declared[id]
		if !ok {
			t.Errorf("%s has no declared environment", id)
			continue
		}
		var want []string
		for _, v := range config.Variables(cfg) {
			want = append(want, v.Name)
		}
		environment := resource.Properties["Environment"].(map[string]any)["Variables"].(map[string]any)
		got := slices.Sorted(maps.Keys(environment))
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s is told %q, and reads %q", id, got, want)
		}
	}
	if seen != len(declared) {
		t.Errorf("the stack has %d functions, want %d", seen, len(declared))
	}
}
