package client

import (
	"context"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// GetLimits returns the limits of the org and of the client's token.
func (c *Client) GetLimits(ctx context.Context) (wire.Limits, error) {
	return get[wire.Limits](ctx, c, call{route: wire.GetLimits})
}
