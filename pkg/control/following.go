package control

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// AgentConfiguration is how a runner's jobs are to be started, as its agents are
// told: what is secret in it is masked.
type AgentConfiguration struct {
	Revision string
	Runner   json.RawMessage // the runner_configuration of package runnerspec
}

// AgentConfiguration returns how the runner's jobs are to be started, nil if
// that is what have says, or nobody has said it. It costs a read unless there is
// something to tell.
func (c *Control) AgentConfiguration(ctx context.Context, id fairlead.RunnerID, have string) (*AgentConfiguration, error) {
	n, err := c.Store.RunnerName(ctx, id)
	if err != nil || n.V.Revision == "" || n.V.Revision == have {
		return nil, err
	}
	r, err := c.Store.Runner(ctx, n.V.Org, n.V.Name)
	if err != nil {
		return nil, err
	}
	var of struct {
		Runner json.RawMessage `json:"runner_configuration"`
	}
	if err := json.Unmarshal(r.V.Config, &of); err != nil {
		return nil, fmt.Errorf("decode the configuration of runner %s: %w", r.V.Name, err)
	}
	return &AgentConfiguration{Revision: r.V.Revision, Runner: of.Runner}, nil
}

// termsFor are the terms of a job of the runner, which may grant it another time
// to start, and its tool another time to save its state.
func termsFor(t job.Terms, r store.Runner) job.Terms {
	if r.Window > 0 {
		t.StartTTL = r.Window
	}
	if r.Grace > 0 {
		t.Grace = r.Grace
	}
	return t
}
