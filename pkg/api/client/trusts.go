package client

import (
	"context"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// CreateTrust lets tokens of an OIDC issuer open sessions of a runner.
func (c *Client) CreateTrust(ctx context.Context, runner string, in wire.CreateTrustRequest) (wire.Trust, error) {
	return get[wire.Trust](ctx, c, call{route: wire.CreateTrust, path: vars{"runner": runner}, in: in, key: NewIdempotencyKey()})
}

// ListTrusts lists a runner's trusts, all of them on one page.
func (c *Client) ListTrusts(ctx context.Context, runner string) (wire.Page[wire.Trust], error) {
	return get[wire.Page[wire.Trust]](ctx, c, call{route: wire.ListTrusts, path: vars{"runner": runner}})
}

// GetTrust returns a trust.
func (c *Client) GetTrust(ctx context.Context, runner, trust string) (wire.Trust, error) {
	return get[wire.Trust](ctx, c, call{route: wire.GetTrust, path: vars{"runner": runner, "trust": trust}})
}

// UpdateTrust replaces the rule of a trust.
func (c *Client) UpdateTrust(ctx context.Context, runner, trust string, in wire.TrustRule) (wire.Trust, error) {
	return get[wire.Trust](ctx, c, call{route: wire.UpdateTrust, path: vars{"runner": runner, "trust": trust}, in: in})
}

// DeleteTrust deletes a trust and ends the sessions that it opened.
func (c *Client) DeleteTrust(ctx context.Context, runner, trust string) error {
	_, err := c.do(ctx, call{route: wire.DeleteTrust, path: vars{"runner": runner, "trust": trust}}, nil)
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
