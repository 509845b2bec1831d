package client

import (
	"context"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// CreateWebhook creates a webhook. Only this answer has its secret.
func (c *Client) CreateWebhook(ctx context.Context, in wire.CreateWebhookRequest) (wire.Webhook, error) {
	return get[wire.Webhook](ctx, c, call{route: wire.CreateWebhook, in: in, key: NewIdempotencyKey()})
}

// ListWebhooks lists one page of webhooks, by name.
func (c *Client) ListWebhooks(ctx context.Context, o ListOptions) (wire.Page[wire.Webhook], error) {
	return page[wire.Webhook](ctx, c, o, call{route: wire.ListWebhooks})
}

// RotateWebhook replaces the keys of a webhook. Only this answer has the new secret.
func (c *Client) RotateWebhook(ctx context.Context, webhook string, in wire.RotateWebhookRequest) (wire.Webhook, error) {
	return get[wire.Webhook](ctx, c, call{route: wire.RotateWebhook, path: vars{"webhook": webhook}, in: in, key: NewIdempotencyKey()})
}

// RevokeWebhookKeys ends the earlier keys of a webhook.
func (c *Client) RevokeWebhookKeys(ctx context.Context, webhook string) (wire.Webhook, error) {
	return get[wire.Webhook](ctx, c, call{route: wire.RevokeWebhook, path: vars{"webhook": webhook}})
}

// DeleteWebhook deletes a webhook.
func (c *Client) DeleteWebhook(ctx context.Context, webhook string) error {
	_, err := c.do(ctx, call{route: wire.DeleteWebhook, path: vars{"webhook": webhook}}, nil)
	return err
}

// ListDeliveries lists one page of a webhook's deliveries, the newest event first.
func (c *Client) ListDeliveries(ctx context.Context, webhook string, o ListOptions) (wire.Page[wire.WebhookDelivery], error) {
	return page[wire.WebhookDelivery](ctx, c, o, call{route: wire.ListDeliveries, path: vars{"webhook": webhook}})
}

// RedeliverWebhook requests another delivery of an event.
func (c *Client) RedeliverWebhook(ctx context.Context, webhook, delivery string) (wire.WebhookDelivery, error) {
	return get[wire.WebhookDelivery](ctx, c, call{route: wire.RedeliverWebhook, path: vars{"webhook": webhook, "delivery": delivery}})
}
