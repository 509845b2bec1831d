package step

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/plugin"
)

// runsInSandbox reports whether the app of the job has a runner in its sandbox. The jobs of an install then run on two runners. A
// seed that one of the agents made by itself is unknown to the other one, which could not read the values. A customer who names one
// seed in the files of both agents has encrypted values there too.
func runsInSandbox(spec events.JobSpec) bool {
	if spec.Version == nil {
		return false
	}
	var app struct {
		Sandbox *struct {
			Runner json.RawMessage `json:"runner"`
		} `json:"sandbox"`
	}
	// The control plane accepts no configuration that is not JSON, and the spec's check has compared it with its digest.
	return json.Unmarshal(spec.Version.Config, &app) == nil && app.Sandbox != nil && app.Sandbox.Runner != nil
}

// takeKeys derives the keys of the job's install from the customer's seed, which it reads with the step's own credentials. The
// ring is zero if the runner has no seed, or the job concerns no install. It passes each seed to hide, because a tool that is
// not isolated could print it.
func (a *execution) takeKeys(ctx context.Context, spec events.JobSpec, hide func(string)) (installkey.Ring, error) {
	if job.Operation(spec.Operation).OfRunner() || a.in.InstallID == "" {
		return installkey.Ring{}, nil
	}
	if a.in.KeyByDefault && runsInSandbox(spec) {
		return installkey.Ring{}, nil
	}
	seeds := a.Seed
	if a.in.InstallKey != "" {
		from, err := runnerspec.ParseReference(a.in.InstallKey)
		if err != nil {
			return installkey.Ring{}, plugin.Errorf(fairlead.ReasonInternal, "install_key of the agent's file is invalid: %v", err)
		}
		seeds, err = a.readSecret(ctx, from)
		if ctx.Err() != nil {
			return installkey.Ring{}, fmt.Errorf("read the seed of the install keys: %w", ctx.Err())
		}
		if err != nil {
			return installkey.Ring{}, &plugin.Error{Reason: fairlead.ReasonInstallKeyUnavailable, Err: err,
				Message: fmt.Sprintf("the seed of the install keys cannot be read from %s, so nothing was started: %v", from.Text, err)}
		}
	}
	if seeds == "" {
		return installkey.Ring{}, nil
	}
	for seed := range strings.Lines(seeds) {
		hide(strings.TrimSpace(seed))
	}
	// The input's install is the one that the signed spec names: the step has compared them.
	keys, err := installkey.NewRing(seeds, fairlead.InstallID(a.in.InstallID))
	if err != nil {
		return installkey.Ring{}, &plugin.Error{Reason: fairlead.ReasonInstallKeyUnavailable, Err: err,
			Message: fmt.Sprintf("the seed of the install keys is invalid, so nothing was started: %v", err)}
	}
	return keys, nil
}
