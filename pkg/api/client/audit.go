package client

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// GetAudit returns the keys that verify the audit.
func (c *Client) GetAudit(ctx context.Context) (wire.Audit, error) {
	return get[wire.Audit](ctx, c, call{route: wire.GetAudit})
}

// ListAuditChains lists one page of the chains of the audit.
func (c *Client) ListAuditChains(ctx context.Context, o ListOptions) (wire.Page[wire.AuditChain], error) {
	return page[wire.AuditChain](ctx, c, o, call{route: wire.ListAuditChains})
}

// ListAuditEntries lists one page of the entries of a chain, newest first. Each item is the JSON of a wire.AuditEntry, as the
// control plane sent it: its hash also covers fields that this version does not know.
func (c *Client) ListAuditEntries(ctx context.Context, chain string, o ListOptions) (wire.Page[json.RawMessage], error) {
	return page[json.RawMessage](ctx, c, o, call{route: wire.ListAuditEntries, path: vars{"chain": chain}})
}

// ListAuditCheckpoints lists one page of the checkpoints, newest first. Each item is the JSON of a wire.AuditCheckpoint.
func (c *Client) ListAuditCheckpoints(ctx context.Context, o ListOptions) (wire.Page[json.RawMessage], error) {
	return page[json.RawMessage](ctx, c, o, call{route: wire.ListAuditCheckpoints})
}
