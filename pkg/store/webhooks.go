package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Webhook is an endpoint that receives events.
type Webhook struct {
	fairlead.Actors
	ID      string         `json:"id"`
	Org     fairlead.OrgID `json:"org"`
	Name    string         `json:"name"`
	URL     string         `json:"url"`
	Events  []string       `json:"events"`           // patterns of package webhook
	Secret  []byte         `json:"secret"`           // its webhook.Keys, sealed
	Public  string         `json:"public,omitempty"` // the public key of Secret; "": an earlier release created the webhook
	Created time.Time      `json:"created"`
	// Rotation identifies the last rotation of the keys; "": none.
	Rotation string       `json:"rotation,omitempty"`
	Rotated  time.Time    `json:"rotated,omitzero"`
	Earlier  *EarlierKeys `json:"earlier,omitempty"`
}

// EarlierKeys are the keys of a webhook before its last rotation. Until they end, they sign, too.
type EarlierKeys struct {
	Secret []byte    `json:"secret"` // webhook.Keys, sealed
	Public string    `json:"public,omitempty"`
	Until  time.Time `json:"until"`
}

// The states of a delivery.
const (
	DeliveryPending   = "pending"
	DeliveryDelivered = "delivered"
	DeliveryFailed    = "failed" // not tried again
)

// Delivery is the state of sending one event to one webhook.
type Delivery struct {
	fairlead.Actors
	ID       string        `json:"id"` // identifier of the event
	Webhook  string        `json:"webhook"`
	What     events.Domain `json:"what"` // the event
	State    string        `json:"state"`
	Attempts int           `json:"attempts"`         // number of attempts since a person last asked for the delivery
	Status   int           `json:"status,omitempty"` // HTTP status of the last answer; 0: no answer
	Problem  string        `json:"problem,omitempty"`
	Last     time.Time     `json:"last,omitzero"`      // time of the last attempt
	Next     time.Time     `json:"next,omitzero"`      // earliest time of the next attempt; zero: none
	Asked    time.Time     `json:"asked,omitzero"`     // when a person last asked for the delivery again
	AskedAt  int64         `json:"asked_at,omitempty"` // the delivery's version that recorded this request
	Expires  time.Time     `json:"expires"`
}

// RedeliveryEvent is the type of the internal event that starts a delivery again
// when a person asks for it. Subscribers never receive it. Its subject is the
// webhook's identifier, "/" and the delivery's identifier.
const RedeliveryEvent = eventPrefix + "webhook.redelivery"

// Event returns the event of the version that recorded a person's request to deliver
// again. For other versions it returns false.
func (d Delivery) Event(version int64) (events.Domain, bool) {
	if d.AskedAt != version || version == 0 {
		return events.Domain{}, false
	}
	return events.Domain{V: 1, Type: RedeliveryEvent, Org: d.What.Org, Subject: d.Webhook + "/" + d.ID, Version: version, Time: d.Asked}, true
}

// Webhook returns a webhook by name.
func (s *Store) Webhook(ctx context.Context, org fairlead.OrgID, name string) (Stored[Webhook], error) {
	return get[Webhook](ctx, s, webhookKey(org, name), missing(fairlead.CodeWebhookNotFound, name))
}

// Webhooks lists webhooks by name.
func (s *Store) Webhooks(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[Webhook], error) {
	return query[Webhook](ctx, s, engine.Query{Partition: webhooksPartition(org), After: q.After, Limit: q.Limit})
}

// AllWebhooks lists an org's webhooks; there are at most a few dozen.
func (s *Store) AllWebhooks(ctx context.Context, org fairlead.OrgID) ([]Stored[Webhook], error) {
	return all[Webhook](ctx, s, engine.Query{Partition: webhooksPartition(org)})
}

// PutWebhook writes a webhook.
func (t *Tx) PutWebhook(r Stored[Webhook]) { put(t, webhookKey(r.V.Org, r.V.Name), r) }

// DeleteWebhook removes a webhook. Its deliveries expire.
func (t *Tx) DeleteWebhook(r Stored[Webhook]) { remove(t, webhookKey(r.V.Org, r.V.Name), r) }

// Delivery returns a delivery by the webhook's identifier and the event's.
func (s *Store) Delivery(ctx context.Context, webhook, id string) (Stored[Delivery], error) {
	return get[Delivery](ctx, s, deliveryKey(webhook, id), missing(fairlead.CodeDeliveryNotFound, id))
}

// Deliveries lists a webhook's deliveries, the newest event first.
func (s *Store) Deliveries(ctx context.Context, webhook string, q fairlead.PageQuery) (Page[Delivery], error) {
	return query[Delivery](ctx, s, engine.Query{Partition: webhookPartition(webhook), Prefix: deliveryPrefix, After: q.After, Limit: q.Limit, Backward: true})
}

// PutDelivery writes a delivery. The record is removed after Expires.
func (t *Tx) PutDelivery(r Stored[Delivery]) {
	put(t, deliveryKey(r.V.Webhook, r.V.ID), r, expires(r.V.Expires))
}
