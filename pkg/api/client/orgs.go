package client

import (
	"context"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// CreateOrg creates an org. Only this answer has the token of its first owner.
func (c *Client) CreateOrg(ctx context.Context, in wire.CreateOrgRequest) (wire.Org, error) {
	return get[wire.Org](ctx, c, call{route: wire.CreateOrg, in: in, key: NewIdempotencyKey()})
}

// ListOrgs lists one page of orgs, by name.
func (c *Client) ListOrgs(ctx context.Context, o ListOptions) (wire.Page[wire.Org], error) {
	return page[wire.Org](ctx, c, o, call{route: wire.ListOrgs})
}

// GetOrg returns an org.
func (c *Client) GetOrg(ctx context.Context, org string) (wire.Org, error) {
	return get[wire.Org](ctx, c, call{route: wire.GetOrg, path: vars{"org": org}})
}

// DeleteOrg deletes an org that is empty.
func (c *Client) DeleteOrg(ctx context.Context, org string) error {
	_, err := c.do(ctx, call{route: wire.DeleteOrg, path: vars{"org": org}}, nil)
	return err
}
