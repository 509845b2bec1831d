package runners

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
func (f *Fleet) AgentConfiguration(ctx context.Context, id fairlead.RunnerID, have string) (*AgentConfiguration, error) {
	n, err := f.Store.RunnerName(ctx, id)
	if err != nil || n.V.Revision == "" || n.V.Revision == have {
		return nil, err
	}
	r, err := f.Store.Runner(ctx, n.V.Org, n.V.Name)
	if err != nil || r.V.Revision == have {
		// What finds a runner may be behind it, if an earlier control plane has
		// written them apart.
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

// TermsFor are the terms of a job of the runner, which may grant it another time
// to start, to run and to say nothing, and its tool another to save its state.
func TermsFor(t job.Terms, r store.Runner) job.Terms {
	if r.StartTimeout > 0 {
		t.StartTimeout = r.StartTimeout
	}
	if r.Grace > 0 {
		t.Grace = r.Grace
	}
	if r.NoOutput > 0 {
		t.NoOutput = r.NoOutput
	}
	if r.Timeout > 0 {
		t.Timeout = r.Timeout
	}
	return t
}

// DirectRunners returns the names of the runners of the org, and of those shared with
// it, that are served by an agent beside the control plane, by their identifiers.
func (f *Fleet) DirectRunners(ctx context.Context, org fairlead.OrgID) (map[string]string, error) {
	out := map[string]string{}
	for _, owner := range []fairlead.OrgID{org, ""} {
		all, err := f.Store.AllRunners(ctx, owner)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if r.V.Direct && !r.V.Leaving {
				out[string(r.V.ID)] = r.V.Name
			}
		}
	}
	return out, nil
}

// DirectConfiguration is AgentConfiguration with its secrets, for the agent
// beside the control plane, and for nobody who asks over a wire. Another runner's
// is refused.
func (f *Fleet) DirectConfiguration(ctx context.Context, id fairlead.RunnerID) (*AgentConfiguration, error) {
	r, err := RunnerByID(f.Reading(ctx), id)
	if err != nil {
		return nil, err
	}
	if !r.Direct {
		return nil, fairlead.Conflict(fairlead.CodeRunnerNotDirect, "runner %s is not served from beside the control plane", r.Name)
	}
	spec, err := specOf(f.Reading(ctx), r)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(spec.Runner)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration of runner %s: %w", r.Name, err)
	}
	return &AgentConfiguration{Revision: r.Revision, Runner: raw}, nil
}
