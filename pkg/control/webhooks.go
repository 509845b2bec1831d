package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/webhook"
)

// MaxWebhooks is the largest number of webhooks of an org. It is small, because one
// invocation of a function delivers an event to all webhooks that select the event.
const MaxWebhooks = 20

// Patterns of a webhook's URL and events, as package webhook checks them.
const (
	WebhookURLPattern   = webhook.URLPattern
	WebhookEventPattern = webhook.FilterPattern
	MaxWebhookEvent     = webhook.MaxFilter
)

// NewWebhook is a request to create a webhook.
type NewWebhook struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`
	Events []string `json:"events"` // patterns; none: all events
}

// Webhook is a webhook. Secret and the public keys have the form in which the owner enters
// them at the endpoint. Only the answer to the request that creates the webhook or rotates
// its keys contains Secret.
type Webhook struct {
	fairlead.Actors
	ID      string
	Name    string
	URL     string
	Events  []string // patterns of package webhook
	Created time.Time
	Secret  string
	Public  string    // "": an earlier release made the keys
	Rotated time.Time // zero: never
	// EarlierUntil is until when the keys before the last rotation sign, too; zero: they do not.
	EarlierUntil  time.Time
	EarlierPublic string
}

func webhookAt(now time.Time) func(store.Webhook) Webhook {
	return func(h store.Webhook) Webhook {
		w := Webhook{Actors: h.Actors, ID: h.ID, Name: h.Name, URL: h.URL, Events: h.Events, Created: h.Created, Public: h.Public, Rotated: h.Rotated}
		if e := h.Earlier; e != nil && now.Before(e.Until) {
			w.EarlierUntil, w.EarlierPublic = e.Until, e.Public
		}
		return w
	}
}

// Delivery is the delivery of one event to one webhook.
type Delivery struct {
	ID       string // of the event
	What     events.Domain
	State    string // pending, delivered, failed
	Attempts int    // number of attempts since the delivery was last requested
	Status   int    // HTTP status of the last answer; 0: none
	Problem  string
	Last     time.Time // time of the last attempt
	Next     time.Time // earliest time of the next attempt; zero: none
}

func deliveryOf(d store.Delivery) Delivery {
	return Delivery{ID: d.ID, What: d.What, State: d.State, Attempts: d.Attempts, Status: d.Status, Problem: d.Problem, Last: d.Last, Next: d.Next}
}

func secretContext(id string) string { return "webhook/" + id + "/secret" }

// CreateWebhook creates a webhook. It generates the secret and returns it only once.
func (c *Control) CreateWebhook(ctx context.Context, org fairlead.OrgID, in NewWebhook, key string) (Webhook, error) {
	if err := fairlead.CheckName("webhook", in.Name); err != nil {
		return Webhook{}, err
	}
	if err := webhook.CheckURL(in.URL); err != nil {
		return Webhook{}, err
	}
	if len(in.Events) == 0 {
		in.Events = []string{"*"}
	}
	for _, p := range in.Events {
		if err := webhook.CheckFilter(p); err != nil {
			return Webhook{}, err
		}
		if !slices.ContainsFunc(store.EventTypes(), func(e store.EventType) bool { return webhook.Selects([]string{p}, e.Type) }) {
			return Webhook{}, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidWebhookEvent,
				Message: fmt.Sprintf("%q selects no events", p), Hint: "Use a type of docs/reference/events.md such as fairlead.job.failed, all below one such as fairlead.job.*, or *."}
		}
	}
	id := c.IDs(fairlead.PrefixWebhook)
	keys := webhook.NewKeys()
	sealed, err := c.Sealer.Seal(ctx, keys.Encode(), secretContext(id))
	if err != nil {
		return Webhook{}, fmt.Errorf("seal the keys of webhook %s: %w", in.Name, err)
	}
	name := in.Name
	err = c.Transact(ctx, "create webhook "+in.Name, func(tx *kernel.Tx) error {
		// Read the webhooks before the key. If an equal concurrent request commits
		// between the two reads, the second read finds its key.
		hooks, err := c.Store.AllWebhooks(ctx, org)
		if err != nil {
			return err
		}
		made, err := tx.Seen(kernel.Once{Org: org, Route: "create-webhook", Key: key, Body: in}, in.Name)
		if err != nil || made != "" {
			name = made
			return err
		}
		for _, h := range hooks {
			switch {
			case h.V.ID == id:
				return nil // our own earlier commit, whose outcome was unclear
			case h.V.Name == in.Name:
				return fairlead.Conflict(fairlead.CodeWebhookExists, "there is a webhook %q already", in.Name)
			}
		}
		if len(hooks) >= MaxWebhooks {
			return fairlead.Conflict(fairlead.CodeTooManyWebhooks, "there are %d webhooks, the largest number allowed", len(hooks))
		}
		tx.PutWebhook(store.Stored[store.Webhook]{V: store.Webhook{ID: id, Org: org, Name: in.Name, URL: in.URL, Events: in.Events, Secret: sealed, Public: keys.FormatPublic(), Created: tx.Now}})
		return nil
	})
	if err != nil {
		return Webhook{}, err
	}
	return c.webhookWithSecret(ctx, org, name)
}

// webhookWithSecret returns a webhook with its secret, for the answer to the request that made the secret.
func (c *Control) webhookWithSecret(ctx context.Context, org fairlead.OrgID, name string) (Webhook, error) {
	r, err := c.Store.Webhook(ctx, org, name)
	if err != nil {
		return Webhook{}, err
	}
	keys, err := openKeys(ctx, c.Sealer, r.V.ID, r.V.Secret)
	if err != nil {
		return Webhook{}, fmt.Errorf("webhook %s: %w", name, err)
	}
	out := webhookAt(c.Instant())(r.V)
	out.Secret = keys.FormatSecret()
	return out, nil
}

func openKeys(ctx context.Context, sealer seal.Sealer, id string, sealed []byte) (webhook.Keys, error) {
	b, err := sealer.Open(ctx, sealed, secretContext(id))
	if err != nil {
		return webhook.Keys{}, fmt.Errorf("open its keys: %w", err)
	}
	return webhook.DecodeKeys(b)
}

// MaxWebhookKeep is the longest time for which keys sign after a rotation.
const MaxWebhookKeep = 7 * 24 * time.Hour

// prefixRotation begins the identifiers of rotations.
const prefixRotation = "rot"

// RotateWebhook replaces the keys of a webhook. The earlier keys sign, too, for the time keep, so that the endpoint can change meanwhile;
// keys that are earlier than these end at once. It returns the new secret only once.
func (c *Control) RotateWebhook(ctx context.Context, org fairlead.OrgID, name string, keep time.Duration, key string) (Webhook, error) {
	if keep < 0 || keep > MaxWebhookKeep {
		return Webhook{}, fairlead.Invalid(fairlead.CodeInvalidRequest, "the earlier keys can sign for %s at most, and not for %s", MaxWebhookKeep, keep)
	}
	hook, err := c.Store.Webhook(ctx, org, name)
	if err != nil {
		return Webhook{}, err
	}
	keys, rotation := webhook.NewKeys(), c.IDs(prefixRotation)
	sealed, err := c.Sealer.Seal(ctx, keys.Encode(), secretContext(hook.V.ID))
	if err != nil {
		return Webhook{}, fmt.Errorf("seal the keys of webhook %s: %w", name, err)
	}
	err = c.Transact(ctx, "rotate the keys of webhook "+name, func(tx *kernel.Tx) error {
		r, err := c.Store.Webhook(ctx, org, name)
		if err != nil {
			return err
		}
		made, err := tx.Seen(kernel.Once{Org: org, Route: "rotate-webhook " + r.V.ID, Key: key, Body: keep}, rotation)
		switch {
		case err != nil:
			return err
		case r.V.Rotation == rotation || made != "" && r.V.Rotation == made:
			return nil // a repeated request, or our own earlier commit, whose outcome was unclear
		case made != "":
			return fairlead.Conflict(fairlead.CodeWebhookRotated, "the keys of webhook %s were rotated again after this request", name)
		case r.V.ID != hook.V.ID: // it was deleted and created again, so the keys are sealed for another webhook
			return fairlead.NotFound(fairlead.CodeWebhookNotFound, name)
		}
		r.V.Earlier = nil
		if keep > 0 {
			r.V.Earlier = &store.EarlierKeys{Secret: r.V.Secret, Public: r.V.Public, Until: tx.Now.Add(keep)}
		}
		r.V.Secret, r.V.Public, r.V.Rotation, r.V.Rotated = sealed, keys.FormatPublic(), rotation, tx.Now
		tx.PutWebhook(r)
		return nil
	})
	if err != nil {
		return Webhook{}, err
	}
	return c.webhookWithSecret(ctx, org, name)
}

// RevokeWebhookKeys ends the keys that a webhook had before its last rotation.
func (c *Control) RevokeWebhookKeys(ctx context.Context, org fairlead.OrgID, name string) (Webhook, error) {
	var out Webhook
	err := c.Transact(ctx, "revoke the earlier keys of webhook "+name, func(tx *kernel.Tx) error {
		r, err := c.Store.Webhook(ctx, org, name)
		if err != nil {
			return err
		}
		if r.V.Earlier != nil {
			r.V.Earlier, r.V.ChangedBy = nil, tx.By
			tx.PutWebhook(r)
		}
		out = webhookAt(tx.Now)(r.V)
		return nil
	})
	return out, err
}

// Webhooks lists webhooks by name.
func (c *Control) Webhooks(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]Webhook, string, error) {
	p, err := c.Store.Webhooks(ctx, org, q)
	return kernel.List(p, err, webhookAt(c.Instant()))
}

// DeleteWebhook deletes a webhook. Its pending events are not delivered any more.
func (c *Control) DeleteWebhook(ctx context.Context, org fairlead.OrgID, name string) error {
	return c.Transact(ctx, "delete webhook "+name, func(tx *kernel.Tx) error {
		r, err := c.Store.Webhook(ctx, org, name)
		if err != nil {
			return tx.Deleted(err)
		}
		tx.DeleteWebhook(r)
		return nil
	})
}

// Deliveries lists the deliveries of a webhook, newest event first.
func (c *Control) Deliveries(ctx context.Context, org fairlead.OrgID, name string, q fairlead.PageQuery) ([]Delivery, string, error) {
	r, err := c.Store.Webhook(ctx, org, name)
	if err != nil {
		return nil, "", err
	}
	p, err := c.Store.Deliveries(ctx, r.V.ID, q)
	return kernel.List(p, err, deliveryOf)
}

// Redeliver delivers an event to the webhook again, with a new series of attempts. The
// commit itself produces the event that starts the delivery.
func (c *Control) Redeliver(ctx context.Context, org fairlead.OrgID, name, id string) (Delivery, error) {
	var out Delivery
	err := c.Transact(ctx, "redeliver "+id+" to webhook "+name, func(tx *kernel.Tx) error {
		hook, err := c.Store.Webhook(ctx, org, name)
		if err != nil {
			return err
		}
		r, err := c.Store.Delivery(ctx, hook.V.ID, id)
		if err != nil {
			return err
		}
		out = deliveryOf(r.V)
		if tx.Again && r.V.State == store.DeliveryPending && r.V.AskedAt == r.Version {
			return nil // our own earlier commit, whose outcome was unclear
		}
		r.V.State, r.V.Attempts, r.V.Status, r.V.Problem = store.DeliveryPending, 0, 0, ""
		r.V.Next, r.V.Asked, r.V.AskedAt, r.V.Expires = tx.Now, tx.Now, r.Version+1, tx.Now.Add(deliveryKept)
		tx.PutDelivery(r)
		out = deliveryOf(r.V)
		return nil
	})
	return out, err
}
