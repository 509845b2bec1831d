package step_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/step"
	"github.com/fairlead/fairlead/runner/step/parts"
)

// The control plane makes jobs from the rows of pkg/component. Without this test, a job of a type without a plugin, or of
// an operation that the plugin lacks, would fail only at the customer.
func TestEveryComponentTypeHasItsPlugin(t *testing.T) {
	plugins := step.Plugins(attempt.Dir(t.TempDir()), attempt.Input{Data: t.TempDir()}, nil, nil, parts.All())
	for _, row := range component.Types() {
		var want []string
		for _, o := range row.Operations {
			want = append(want, string(o.Name))
		}
		got := slices.Clone(plugins.Operations(row.Name))
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("component type %s has operations %v, its plugin has %v", row.Name, want, got)
		}
	}
}
