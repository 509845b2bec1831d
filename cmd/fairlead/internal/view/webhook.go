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
	rows := make([][]string, len(ws))
	for i, w := range ws {
		rows[i] = []string{w.Name, w.URL, strings.Join(w.Events, " "), p.Ago(w.CreatedAt)}
	}
	p.Table([]string{"WEBHOOK", "URL", "EVENTS", "CREATED"}, rows)
}

// NewWebhook is a webhook that was just made, with its secret.
type NewWebhook wire.Webhook

// JSON returns the wire.Webhook.
func (w NewWebhook) JSON() any { return wire.Webhook(w) }

// Human writes what was made, and the secret.
func (w NewWebhook) Human(p *Page) {
	p.Line("%s Created webhook %s", Styled(p.Style.Good("✓")), w.Name)
	p.Line("  Its secret is shown once: %s", w.Secret)
}

// Deliveries is a listing of what was delivered to a webhook.
type Deliveries []wire.WebhookDelivery

// JSON returns an array of wire.WebhookDelivery.
func (ds Deliveries) JSON() any { return array(ds) }

// Human writes a table.
func (ds Deliveries) Human(p *Page) {
	rows := make([][]string, len(ds))
	for i, d := range ds {
		last := "-"
		if d.LastAt != nil {
			last = p.Ago(*d.LastAt)
		}
		answer := d.Problem
		if d.Status != 0 && answer == "" {
			answer = fmt.Sprint(d.Status)
		}
		rows[i] = []string{d.ID, d.Type, d.Subject, d.State, fmt.Sprint(d.Attempts), last, cmp.Or(answer, "-")}
	}
	p.Table([]string{"EVENT", "TYPE", "SUBJECT", "STATE", "ATTEMPTS", "LAST", "ANSWER"}, rows)
}

// Redelivery says that an event is delivered again.
type Redelivery struct {
	Webhook  string
	Delivery wire.WebhookDelivery
}

// JSON returns the wire.WebhookDelivery.
func (r Redelivery) JSON() any { return r.Delivery }

// Human writes one line.
func (r Redelivery) Human(p *Page) {
	p.Line("%s %s is delivered to webhook %s again", Styled(p.Style.Good("✓")), r.Delivery.ID, r.Webhook)
}
