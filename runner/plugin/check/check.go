// Package check is the plugin of check jobs. It does nothing and succeeds: its job proves that the control plane and a
// runner reach each other in both directions.
package check

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/runner/plugin"
)

// Name is the plugin's name in a job spec.
const Name = "check"

// Plugin implements plugin.Plugin.
type Plugin struct{}

// Operations lists "check".
func (Plugin) Operations() []string { return []string{"check"} }

// Run writes one line to the log.
func (Plugin) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	if err := ctx.Err(); err != nil {
		return plugin.Result{}, fmt.Errorf("check: %w", err)
	}
	if _, err := fmt.Fprintf(env.Log, "runner %s runs job %s, attempt %d\n", spec.Runner, spec.Job, spec.Epoch); err != nil {
		return plugin.Result{}, fmt.Errorf("check: write log: %w", err)
	}
	return plugin.Result{}, nil
}
