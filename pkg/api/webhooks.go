package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// WebhookPath names a webhook.
type WebhookPath struct {
	Webhook string `path:"webhook" maxLength:"63" form:"name" doc:"Name of the webhook"`
}

func (s *server) webhookRoutes(c *control.Control) {
	type create struct {
		OnceInput
		Body wire.CreateWebhookRequest
	}
	register(s, op{Route: wire.CreateWebhook, auth: apiToken, may: onOrg(access.ManageWebhooks), tag: "Webhooks", summary: "Create a webhook, which receives events", status: http.StatusCreated,
		doc: "Events are sent as CloudEvents 1.0 in structured JSON, signed with HMAC-SHA256 and with Ed25519 by Standard Webhooks. Each event is delivered at least once, in any order: " +
			"`webhook-id` is the same for a repeated delivery, and `data.version` orders the events of a subject. A delivery without a 2xx answer is attempted eight times within 7 h 36 min.",
		problems: slices.Concat(creator, codes{fairlead.CodeInvalidName, fairlead.CodeInvalidWebhookURL, fairlead.CodeInvalidWebhookEvent, fairlead.CodeWebhookExists, fairlead.CodeTooManyWebhooks})},
		func(ctx context.Context, in *create) (*body[wire.Webhook], error) {
			w, err := c.CreateWebhook(ctx, callerOf(ctx).org, control.NewWebhook{Name: in.Body.Name, URL: in.Body.URL, Events: in.Body.Events}, in.IdempotencyKey)
			return answer(renderWebhook(w), err)
		})
	register(s, op{Route: wire.ListWebhooks, auth: apiToken, may: eachCaller(), tag: "Webhooks", summary: "List webhooks by name",
		problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.Webhook], error) {
			return list(in, seen(ctx, s, always[control.Webhook](access.OrgObject(callerOf(ctx).org))), renderWebhook, func(q fairlead.PageQuery) ([]control.Webhook, string, error) {
				return c.Webhooks(ctx, callerOf(ctx).org, q)
			})
		})
	type rotate struct {
		WebhookPath
		OnceInput
		Body wire.RotateWebhookRequest
	}
	register(s, op{Route: wire.RotateWebhook, auth: apiToken, may: on(access.ManageWebhooks), tag: "Webhooks", summary: "Replace the keys of a webhook",
		doc:      "The earlier keys sign, too, for the requested time: an endpoint accepts an event if one of its signatures is valid. Two pairs of keys sign at most.",
		problems: slices.Concat(creator, codes{fairlead.CodeWebhookNotFound, fairlead.CodeWebhookRotated})},
		func(ctx context.Context, in *rotate) (*body[wire.Webhook], error) {
			w, err := c.RotateWebhook(ctx, callerOf(ctx).org, in.Webhook, time.Duration(in.Body.KeepHours)*time.Hour, in.IdempotencyKey)
			return answer(renderWebhook(w), err)
		})
	register(s, op{Route: wire.RevokeWebhook, auth: apiToken, may: on(access.ManageWebhooks), tag: "Webhooks", summary: "End the earlier keys of a webhook",
		problems: codes{fairlead.CodeWebhookNotFound}},
		func(ctx context.Context, in *WebhookPath) (*body[wire.Webhook], error) {
			w, err := c.RevokeWebhookKeys(ctx, callerOf(ctx).org, in.Webhook)
			return answer(renderWebhook(w), err)
		})
	register(s, op{Route: wire.DeleteWebhook, auth: apiToken, may: on(access.ManageWebhooks), tag: "Webhooks", summary: "Delete a webhook", status: http.StatusNoContent,
		problems: codes{fairlead.CodeWebhookNotFound}},
		func(ctx context.Context, in *WebhookPath) (*struct{}, error) {
			return nil, c.DeleteWebhook(ctx, callerOf(ctx).org, in.Webhook)
		})
	type deliveries struct {
		WebhookPath
		ListInput
	}
	register(s, op{Route: wire.ListDeliveries, auth: apiToken, may: on(access.ManageWebhooks), tag: "Webhooks", summary: "List the deliveries of a webhook, newest event first",
		doc:      "Deliveries are kept for 30 days.",
		problems: slices.Concat(listing, codes{fairlead.CodeWebhookNotFound})},
		func(ctx context.Context, in *deliveries) (*paged[wire.WebhookDelivery], error) {
			return list(&in.ListInput, all[control.Delivery](), renderDelivery, func(q fairlead.PageQuery) ([]control.Delivery, string, error) {
				return c.Deliveries(ctx, callerOf(ctx).org, in.Webhook, q)
			})
		})
	type redeliver struct {
		WebhookPath
		Delivery string `path:"delivery" maxLength:"64" form:"identifier" doc:"Identifier of the delivery's event"`
	}
	register(s, op{Route: wire.RedeliverWebhook, auth: apiToken, may: on(access.ManageWebhooks), tag: "Webhooks", summary: "Deliver an event again", status: http.StatusAccepted,
		problems: codes{fairlead.CodeWebhookNotFound, fairlead.CodeDeliveryNotFound}},
		func(ctx context.Context, in *redeliver) (*body[wire.WebhookDelivery], error) {
			d, err := c.Redeliver(ctx, callerOf(ctx).org, in.Webhook, in.Delivery)
			return answer(renderDelivery(d), err)
		})
}

func renderWebhook(w control.Webhook) wire.Webhook {
	out := wire.Webhook{Actors: renderActors(w.Actors), ID: w.ID, Name: w.Name, URL: w.URL, Events: append([]string{}, w.Events...), Secret: w.Secret, PublicKey: w.Public, CreatedAt: w.Created}
	if !w.Rotated.IsZero() {
		out.RotatedAt = &w.Rotated
	}
	if !w.EarlierUntil.IsZero() {
		out.Earlier = &wire.EarlierWebhookKeys{PublicKey: w.EarlierPublic, Until: w.EarlierUntil}
	}
	return out
}

func renderDelivery(d control.Delivery) wire.WebhookDelivery {
	out := wire.WebhookDelivery{ID: d.ID, Type: d.What.Type, Subject: d.What.Subject, EventTime: d.What.Time, State: d.State, Attempts: d.Attempts,
		Status: d.Status, Problem: d.Problem}
	if !d.Last.IsZero() {
		out.LastAt = &d.Last
	}
	if !d.Next.IsZero() {
		out.NextAt = &d.Next
	}
	return out
}
