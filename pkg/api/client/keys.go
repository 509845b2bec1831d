package client

import (
	"context"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// ListKeys returns the keys that sign job specs.
func (c *Client) ListKeys(ctx context.Context) (wire.Keys, error) {
	return get[wire.Keys](ctx, c, call{route: wire.ListKeys})
}

// RotateKeys makes a new key that signs job specs.
func (c *Client) RotateKeys(ctx context.Context) (wire.Keys, error) {
	return get[wire.Keys](ctx, c, call{route: wire.RotateKeys})
}

// RevokeKey removes a key from those that runners trust.
func (c *Client) RevokeKey(ctx context.Context, id string) (wire.Keys, error) {
	return get[wire.Keys](ctx, c, call{route: wire.RevokeKey, path: vars{"signing_key": id}})
}

// PutKeySet puts a change of the keys that was signed elsewhere.
func (c *Client) PutKeySet(ctx context.Context, in wire.PutKeySetRequest) (wire.Keys, error) {
	return get[wire.Keys](ctx, c, call{route: wire.PutKeySet, in: in})
}
