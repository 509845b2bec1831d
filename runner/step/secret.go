package step

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/plugin"
)

// secretTimeout bounds reading one secret. The stores answer within milliseconds, and the SDK retries a few times.
const secretTimeout = 30 * time.Second

// giveSecrets reads the secrets that the customer gives to the component, with the step's own credentials. It adds them
// to the variables of spec, and returns the environment variables for the tool. The log masks each value before the tool
// gets it.
func (a *execution) giveSecrets(ctx context.Context, spec *events.JobSpec, secrets *redact.Set) (map[string]string, error) {
	if spec.Build != nil {
		return a.giveBuildSecrets(ctx, spec.Build, secrets)
	}
	if op := job.Operation(spec.Operation); op.OfRunner() || op == job.OpMigrateState {
		return map[string]string{}, nil // these start no code of the app
	}
	given, err := runnerspec.SecretsOf(a.in.Secrets, spec.Component)
	if err != nil {
		return nil, plugin.Errorf(fairlead.ReasonInternal, "the agent's file has an invalid secret: %v", err)
	}
	if missing := missingSecret(spec, given); missing != "" {
		question := ""
		if near := runnerspec.NearestSecret(a.in.Secrets, spec.Component, missing); near != "" {
			question = fmt.Sprintf(". There is %s: is that name misspelt?", near)
		}
		return nil, plugin.Errorf(fairlead.ReasonSecretUnavailable,
			"the component %s needs the customer's secret %s, and the runner gives none, so nothing was started: set %s/%s under secrets in the agent's file or in the values of the runner's chart, or in the parameter JobSecrets of the runner's stack%s",
			spec.Component, missing, spec.Component, missing, question)
	}
	t, _ := component.Of(spec.Plugin)
	env := map[string]string{}
	vars := maps.Clone(spec.Vars)
	if vars == nil {
		vars = map[string]events.SpecVar{}
	}
	for _, s := range given {
		value, err := a.readSecret(ctx, s.From)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read a secret: %w", ctx.Err())
		}
		if err != nil {
			return nil, &plugin.Error{Reason: fairlead.ReasonSecretUnavailable, Err: err,
				Message: fmt.Sprintf("the customer's secret %s cannot be read from %s, so nothing was started: %v", s.Name(), s.From.Text, err)}
		}
		secrets.Add(value)
		switch {
		case s.Variable == "":
			env[s.Environment] = value
		case t.SecretPrefix != "":
			env[t.SecretPrefix+s.Variable] = value
		default:
			raw, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("encode a secret: %w", err)
			}
			vars[s.Variable] = events.SpecVar{Value: raw, Sensitive: true}
		}
	}
	spec.Vars = vars
	return env, nil
}

// giveBuildSecrets reads the secrets of the build runner that the build names. It returns an environment with them, which the
// plugin gives to no tool.
func (a *execution) giveBuildSecrets(ctx context.Context, b *events.Build, secrets *redact.Set) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range append(slices.Sorted(maps.Values(b.Logins)), b.From.Credentials) {
		given, err := a.giveBuildSecret(ctx, name, secrets)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, given)
	}
	return out, nil
}

// giveBuildSecret reads the secret of the build runner with this name, which must not be limited to a component. It returns
// an environment with the secret. If name is "", the build needs none.
func (a *execution) giveBuildSecret(ctx context.Context, name string, secrets *redact.Set) (map[string]string, error) {
	if name == "" {
		return map[string]string{}, nil
	}
	given, err := runnerspec.SecretsOf(a.in.Secrets, "")
	if err != nil {
		return nil, plugin.Errorf(fairlead.ReasonInternal, "the agent's file has an invalid secret: %v", err)
	}
	i := slices.IndexFunc(given, func(s runnerspec.JobSecret) bool { return s.Variable == "" && s.Environment == name })
	if i < 0 {
		return nil, plugin.Errorf(fairlead.ReasonSecretUnavailable, "the build needs the secret %s, and the build runner gives none, so nothing was started: set %s under secrets in the agent's file, or in buildRunnerSecrets of the control plane's stack", name, name)
	}
	value, err := a.readSecret(ctx, given[i].From)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonSecretUnavailable, Err: err,
			Message: fmt.Sprintf("the build runner's secret %s cannot be read from %s, so nothing was started: %v", name, given[i].From.Text, err)}
	}
	secrets.Add(value)
	return map[string]string{name: value}, nil
}

// missingSecret returns the first secret that the app declares for the component and the customer does not give; "" if
// there is none. The app's configuration is a part of the spec, and the spec's check has compared it with its digest.
func missingSecret(spec *events.JobSpec, given []runnerspec.JobSecret) string {
	if spec.Version == nil {
		return "" // an older control plane sends no configuration
	}
	var app struct {
		Components []struct {
			Name    string
			Secrets []string
		}
	}
	if json.Unmarshal(spec.Version.Config, &app) != nil {
		return "" // the control plane accepts no such configuration
	}
	for _, c := range app.Components {
		for _, name := range c.Secrets {
			if c.Name == spec.Component && !slices.ContainsFunc(given, func(s runnerspec.JobSecret) bool { return s.Name() == name }) {
				return name
			}
		}
	}
	return ""
}

func (a *execution) readSecret(ctx context.Context, from runnerspec.Reference) (string, error) {
	if a.ReadSecret == nil {
		return "", fmt.Errorf("this runner reads no secrets")
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	region := ""
	if a.in.Role != nil {
		region = a.in.Role.Region
	}
	return a.ReadSecret(ctx, region, from)
}
