package runners

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// AgentConfiguration tells a runner's agents how to start the runner's jobs. Its secrets
// are masked.
type AgentConfiguration struct {
	Revision string
	Runner   json.RawMessage // the runner_configuration of package runnerspec
}

// AgentSettings is what a runner's agents need to know about the runner.
type AgentSettings struct {
	// Seeded reports whether the runner is recorded as having a seed, and KeysWanted are the installs whose keys are wanted.
	Seeded        bool
	KeysWanted    []fairlead.InstallID
	Wanted        *Wanted             // the version that they should run; nil: any version
	Configuration *AgentConfiguration // nil: the runner has none, or the agent has it
}

// AgentSettings returns the runner's settings for its agents. The parameter have is the
// revision of the configuration that the agent has. An unchanged configuration costs one
// read.
func (f *Fleet) AgentSettings(ctx context.Context, id fairlead.RunnerID, have string) (AgentSettings, error) {
	n, err := f.Store.RunnerName(ctx, id)
	if err != nil {
		return AgentSettings{}, err
	}
	return settings(f.Reading(ctx), n.V, nil, have)
}

// settings returns the settings of the runner n. It reads the runner's record only if r is
// nil and the agent lacks the configuration.
func settings(tx *kernel.Tx, n store.RunnerName, r *store.Runner, have string) (AgentSettings, error) {
	w, err := wanted(tx, n.Version, n.Channel)
	out := AgentSettings{Wanted: w, Seeded: n.Seeded, KeysWanted: wantedIDs(n.KeysWanted)}
	if err != nil || n.Revision == "" || n.Revision == have {
		return out, err
	}
	if r == nil {
		stored, err := tx.Store.Runner(tx.Ctx, n.Org, n.Name)
		if err != nil {
			return out, err
		}
		r = &stored.V
	}
	if r.Revision == have {
		// The record with the runner's name may be older than the runner's record, if an
		// earlier release wrote the two records in separate commits.
		return out, nil
	}
	var of struct {
		Runner json.RawMessage `json:"runner_configuration"`
	}
	if err := json.Unmarshal(r.Config, &of); err != nil {
		return out, fmt.Errorf("decode the configuration of runner %s: %w", r.Name, err)
	}
	out.Configuration = &AgentConfiguration{Revision: r.Revision, Runner: of.Runner}
	return out, nil
}

// TermsFor returns the terms of a job with the runner's own start timeout, no-output
// timeout, run timeout and grace period to save the state.
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

// DirectRunners returns the runners that an agent beside the control plane serves: those
// of the org and the shared runners. The map has each runner's name by its identifier.
func (f *Fleet) DirectRunners(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	orgs, err := f.Store.OrgNames(ctx)
	if err != nil {
		return nil, err
	}
	for _, owner := range append(orgs, "") {
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

// directRunner returns a runner that an agent beside the control plane serves. Another runner is
// refused: its agents are the customer's, and the vendor's may not take its jobs.
func directRunner(tx *kernel.Tx, id fairlead.RunnerID) (store.Runner, error) {
	r, err := RunnerByID(tx, id)
	if err == nil && !r.Direct {
		err = fairlead.Conflict(fairlead.CodeRunnerNotDirect, "runner %s is not served by an agent beside the control plane", r.Name)
	}
	return r, err
}

// DirectEnrolment is CreateEnrolment for an agent beside the control plane.
func (f *Fleet) DirectEnrolment(ctx context.Context, id fairlead.RunnerID) (token string, err error) {
	r, err := directRunner(f.Reading(ctx), id)
	if err != nil {
		return "", err
	}
	token, _, err = f.CreateEnrolment(ctx, kernel.User{Org: r.Org, Operator: true}, r.Name)
	return token, err
}

// DirectConfiguration is AgentConfiguration with its secrets, for the agent beside the
// control plane. No HTTP API may return it. A runner that is not direct is refused.
func (f *Fleet) DirectConfiguration(ctx context.Context, id fairlead.RunnerID) (*AgentConfiguration, error) {
	r, err := directRunner(f.Reading(ctx), id)
	if err != nil {
		return nil, err
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
