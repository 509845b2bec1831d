package client

import (
	"context"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// CreateServiceAccount creates a service account.
func (c *Client) CreateServiceAccount(ctx context.Context, in wire.CreateServiceAccountRequest) (wire.ServiceAccount, error) {
	return get[wire.ServiceAccount](ctx, c, call{route: wire.CreateServiceAccount, in: in, key: NewIdempotencyKey()})
}

// ListServiceAccounts lists one page of service accounts, by name.
func (c *Client) ListServiceAccounts(ctx context.Context, o ListOptions) (wire.Page[wire.ServiceAccount], error) {
	return page[wire.ServiceAccount](ctx, c, o, call{route: wire.ListServiceAccounts})
}

// GetServiceAccount returns a service account with its runners.
func (c *Client) GetServiceAccount(ctx context.Context, account string) (wire.ServiceAccount, error) {
	return get[wire.ServiceAccount](ctx, c, call{route: wire.GetServiceAccount, path: vars{"account": account}})
}

// UpdateServiceAccount replaces the rule and the roles of a service account.
func (c *Client) UpdateServiceAccount(ctx context.Context, account string, in wire.ServiceAccountSettings) (wire.ServiceAccount, error) {
	return get[wire.ServiceAccount](ctx, c, call{route: wire.UpdateServiceAccount, path: vars{"account": account}, in: in})
}

// DeleteServiceAccount deletes a service account that no runner has.
func (c *Client) DeleteServiceAccount(ctx context.Context, account string) error {
	_, err := c.do(ctx, call{route: wire.DeleteServiceAccount, path: vars{"account": account}}, nil)
	return err
}

// LogInServiceAccount trades an OIDC token of the program's platform for a token of the control plane. It needs no token.
func (c *Client) LogInServiceAccount(ctx context.Context, account string, in wire.LogInServiceAccountRequest) (wire.ServiceAccountLogin, error) {
	return get[wire.ServiceAccountLogin](ctx, c, call{route: wire.LogInServiceAccount, path: vars{"account": account}, in: in, key: NewIdempotencyKey()})
}

// AssignServiceAccount lets agents open sessions of the runner as the service account.
func (c *Client) AssignServiceAccount(ctx context.Context, runner, account string) (wire.Runner, error) {
	return get[wire.Runner](ctx, c, call{route: wire.AssignServiceAccount, path: vars{"runner": runner, "account": account}})
}

// UnassignServiceAccount takes the service account from the runner, and ends the sessions that agents opened as it.
func (c *Client) UnassignServiceAccount(ctx context.Context, runner, account string) error {
	_, err := c.do(ctx, call{route: wire.UnassignServiceAccount, path: vars{"runner": runner, "account": account}}, nil)
	return err
}

// ListAgents lists the agents that enrolled with a key for a runner, all of them on
// one page.
func (c *Client) ListAgents(ctx context.Context, runner string) (wire.Page[wire.Agent], error) {
	return get[wire.Page[wire.Agent]](ctx, c, call{route: wire.ListAgents, path: vars{"runner": runner}})
}

// RevokeAgent revokes the key of an agent and ends the sessions that it opened.
func (c *Client) RevokeAgent(ctx context.Context, runner, key string) error {
	_, err := c.do(ctx, call{route: wire.RevokeAgent, path: vars{"runner": runner, "key": key}}, nil)
	return err
}

// EndSession ends a session of an agent of the runner.
func (c *Client) EndSession(ctx context.Context, runner, session string) error {
	_, err := c.do(ctx, call{route: wire.EndSession, path: vars{"runner": runner, "session": session}}, nil)
	return err
}
