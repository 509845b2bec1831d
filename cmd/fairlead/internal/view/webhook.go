package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Webhooks is a listing of webhooks.
type Webhooks []wire.Webhook

// JSON returns an array of wire.Webhook.
func (ws Webhooks) JSON() any { return array(ws) }

// Human writes a table.
func (ws Webhooks) Human(p *Page) {
	table(p, []string{"WEBHOOK", "URL", "EVENTS", "CREATED"}, ws, func(w wire.Webhook) []string {
		return []string{w.Name, w.URL, strings.Join(w.Events, " "), p.Ago(w.CreatedAt)}
	})
}

// Deliveries is a listing of a webhook's deliveries.
type Deliveries []wire.WebhookDelivery

// JSON returns an array of wire.WebhookDelivery.
func (ds Deliveries) JSON() any { return array(ds) }

// Human writes a table.
func (ds Deliveries) Human(p *Page) {
	table(p, []string{"EVENT", "TYPE", "SUBJECT", "STATE", "ATTEMPTS", "LAST", "ANSWER"}, ds, func(d wire.WebhookDelivery) []string {
		last := "-"
		if d.LastAt != nil {
			last = Time(*d.LastAt)
		}
		answer := d.Problem
		if d.Status != 0 && answer == "" {
			answer = fmt.Sprint(d.Status)
		}
		return []string{d.ID, d.Type, d.Subject, d.State, fmt.Sprint(d.Attempts), last, cmp.Or(answer, "-")}
	})
}
