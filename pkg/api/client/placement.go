package client

import (
	"context"
	"net/url"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// UpdateRunner changes a part of a runner's configuration.
func (c *Client) UpdateRunner(ctx context.Context, runner string, in wire.UpdateRunnerRequest) (wire.Runner, error) {
	return get[wire.Runner](ctx, c, call{route: wire.UpdateRunner, path: vars{"runner": runner}, in: in})
}

// DeleteRunner deletes a runner that nothing uses.
func (c *Client) DeleteRunner(ctx context.Context, runner string) error {
	_, err := c.do(ctx, call{route: wire.DeleteRunner, path: vars{"runner": runner}}, nil)
	return err
}

// SetRunnerMode sets the mode of a runner: "enabled", "paused", "draining" or
// "disabled".
func (c *Client) SetRunnerMode(ctx context.Context, runner, mode string) (wire.Runner, error) {
	return get[wire.Runner](ctx, c, call{route: wire.SetRunnerMode, path: vars{"runner": runner}, in: wire.RunnerMode{Mode: mode}})
}

// SetRunnerChannel sets the version of an update channel.
func (c *Client) SetRunnerChannel(ctx context.Context, channel string, in wire.SetRunnerChannelRequest) (wire.RunnerChannel, error) {
	return get[wire.RunnerChannel](ctx, c, call{route: wire.SetRunnerChannel, path: vars{"channel": channel}, in: in})
}

// ListRunnerChannels lists one page of update channels.
func (c *Client) ListRunnerChannels(ctx context.Context, o ListOptions) (wire.Page[wire.RunnerChannel], error) {
	return page[wire.RunnerChannel](ctx, c, o, call{route: wire.ListRunnerChannels})
}

// DeleteRunnerChannel deletes an update channel.
func (c *Client) DeleteRunnerChannel(ctx context.Context, channel string) error {
	_, err := c.do(ctx, call{route: wire.DeleteRunnerChannel, path: vars{"channel": channel}}, nil)
	return err
}

// ExplainPlacement returns which runner serves an install, and why.
func (c *Client) ExplainPlacement(ctx context.Context, install string) (wire.Placement, error) {
	return get[wire.Placement](ctx, c, call{route: wire.ExplainPlacement, path: vars{"install": install}})
}

// RefreshRunner applies the current rules to choose the runner of an install. If the
// answer is lost, the client does not repeat the request. The answer to the repeated
// request would report that nothing changed, although the first request may have
// changed the runner.
func (c *Client) RefreshRunner(ctx context.Context, install string, in wire.RefreshRunnerRequest) (wire.RefreshedRunner, error) {
	return get[wire.RefreshedRunner](ctx, c, call{route: wire.RefreshRunner, path: vars{"install": install}, in: in, once: true})
}

// MigrateState queues the job that moves the states of an install to the storage of
// its runner.
func (c *Client) MigrateState(ctx context.Context, install string) (wire.Job, error) {
	return get[wire.Job](ctx, c, call{route: wire.MigrateState, path: vars{"install": install}, key: NewIdempotencyKey()})
}

// CreateRunnerRule creates a rule.
func (c *Client) CreateRunnerRule(ctx context.Context, in wire.CreateRunnerRuleRequest) (wire.RunnerRule, error) {
	return get[wire.RunnerRule](ctx, c, call{route: wire.CreateRunnerRule, in: in, key: NewIdempotencyKey()})
}

// ListRunnerRules lists one page of rules.
func (c *Client) ListRunnerRules(ctx context.Context, o ListOptions) (wire.Page[wire.RunnerRule], error) {
	return page[wire.RunnerRule](ctx, c, o, call{route: wire.ListRunnerRules})
}

// DeleteRunnerRule deletes a rule.
func (c *Client) DeleteRunnerRule(ctx context.Context, rule string) error {
	_, err := c.do(ctx, call{route: wire.DeleteRunnerRule, path: vars{"rule": rule}}, nil)
	return err
}

// CreateGroup creates a group.
func (c *Client) CreateGroup(ctx context.Context, in wire.CreateGroupRequest) (wire.Group, error) {
	return get[wire.Group](ctx, c, call{route: wire.CreateGroup, in: in, key: NewIdempotencyKey()})
}

// ListGroups lists one page of groups.
func (c *Client) ListGroups(ctx context.Context, o ListOptions) (wire.Page[wire.Group], error) {
	return page[wire.Group](ctx, c, o, call{route: wire.ListGroups})
}

// GetGroup returns the group at a path.
func (c *Client) GetGroup(ctx context.Context, path string) (wire.Group, error) {
	return get[wire.Group](ctx, c, call{route: wire.GetGroup, query: url.Values{"path": {path}}})
}

// UpdateGroup changes the description of a group.
func (c *Client) UpdateGroup(ctx context.Context, path string, in wire.UpdateGroupRequest) (wire.Group, error) {
	return get[wire.Group](ctx, c, call{route: wire.UpdateGroup, query: url.Values{"path": {path}}, in: in})
}

// DeleteGroup deletes an empty group.
func (c *Client) DeleteGroup(ctx context.Context, path string) error {
	_, err := c.do(ctx, call{route: wire.DeleteGroup, query: url.Values{"path": {path}}}, nil)
	return err
}

// VariableScope names the one runner, group, app or install on which variables are
// set. Set exactly one field.
type VariableScope struct{ Runner, Group, App, Install string }

func (s VariableScope) query() url.Values {
	q := url.Values{}
	set(q, "runner", s.Runner)
	set(q, "group", s.Group)
	set(q, "app", s.App)
	set(q, "install", s.Install)
	return q
}

// GetVariables returns the environment variables that are set on the scope.
func (c *Client) GetVariables(ctx context.Context, of VariableScope) (wire.Variables, error) {
	return get[wire.Variables](ctx, c, call{route: wire.GetVariables, query: of.query()})
}

// SetVariables changes environment variables that are set on the scope.
func (c *Client) SetVariables(ctx context.Context, of VariableScope, in wire.SetVariablesRequest) (wire.Variables, error) {
	return get[wire.Variables](ctx, c, call{route: wire.SetVariables, query: of.query(), in: in})
}
