package control_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
)

// declared maps the logical id of each function to the struct of its environment.
var declared = map[string]any{
	"ControlAPI": &config.ControlAPI{}, "SessionAPI": &config.SessionAPI{}, "RunnerAPI": &config.RunnerAPI{}, "Direct": &config.Direct{}, "Dispatch": &config.Dispatch{}, "Audit": &config.Audit{},
	"Sweep": &config.Sweep{}, "LogIndex": &config.LogIndex{}, "Webhook": &config.Webhook{},
}

// If the stack does not set a variable that a main reads, the function fails at the
// first request. A variable that no function reads is misleading.
func TestStackSetsDeclaredEnvironment(t *testing.T) {
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
			t.Errorf("the stack sets %[2]q for %[1]s, which reads %[3]q", id, got, want)
		}
	}
	if seen != len(declared) {
		t.Errorf("the stack has %d functions, want %d", seen, len(declared))
	}
}
