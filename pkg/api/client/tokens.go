package client

import (
	"context"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// CreateToken creates an API token. Only this answer has the secret token.
func (c *Client) CreateToken(ctx context.Context, in wire.CreateTokenRequest) (wire.Token, error) {
	return get[wire.Token](ctx, c, call{route: wire.CreateToken, in: in, key: NewIdempotencyKey()})
}

// ListTokens lists one page of API tokens, by name.
func (c *Client) ListTokens(ctx context.Context, o ListOptions) (wire.Page[wire.Token], error) {
	return page[wire.Token](ctx, c, o, call{route: wire.ListTokens})
}

// GetToken returns an API token by its name or ID, without the secret token.
func (c *Client) GetToken(ctx context.Context, token string) (wire.Token, error) {
	return get[wire.Token](ctx, c, call{route: wire.GetToken, path: vars{"token": token}})
}

// RevokeToken revokes an API token by its name or ID.
func (c *Client) RevokeToken(ctx context.Context, token string) error {
	_, err := c.do(ctx, call{route: wire.RevokeToken, path: vars{"token": token}}, nil)
	return err
}
