package step_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/step"
)

// The control plane makes jobs by the rows of pkg/component. A type without its plugin,
// or an operation that the plugin does not have, would be refused at the customer's.
func TestATypeOfComponentHasNoPluginThatDoesWhatItsRowSays(t *testing.T) {
	plugins := step.Plugins(attempt.Dir(t.TempDir()), attempt.Input{Data: t.TempDir()}, nil)
	for _, row := range component.Types() {
		var want []string
		for _, o := range row.Operations {
			want = append(want, string(o.Name))
		}
		got := slices.Clone(plugins.Operations(row.Name))
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("the row of %s has %v, the plugin %v", row.Name, want, got)
		}
	}
}
