package wire

import "time"

// The routes of the control API about webhooks.
var (
	CreateWebhook    = Route{"create-webhook", "POST", "/v1/webhooks"}
	ListWebhooks     = Route{"list-webhooks", "GET", "/v1/webhooks"}
	RotateWebhook    = Route{"rotate-webhook", "POST", "/v1/webhooks/{webhook}/rotate"}
	RevokeWebhook    = Route{"revoke-webhook-keys", "DELETE", "/v1/webhooks/{webhook}/earlier-keys"}
	DeleteWebhook    = Route{"delete-webhook", "DELETE", "/v1/webhooks/{webhook}"}
	ListDeliveries   = Route{"list-deliveries", "GET", "/v1/webhooks/{webhook}/deliveries"}
	RedeliverWebhook = Route{"redeliver-webhook", "POST", "/v1/webhooks/{webhook}/deliveries/{delivery}/redeliver"}
)

// CreateWebhookRequest creates a webhook.
type CreateWebhookRequest struct {
	Name   string   `json:"name" minLength:"1" maxLength:"63" form:"name"`
	URL    string   `json:"url" minLength:"1" maxLength:"2000" form:"webhook-url" doc:"https URL with a public address"`
	Events []string `json:"events,omitempty" maxItems:"50" form:"webhook-event" doc:"Types of events, such as fairlead.job.failed or fairlead.deployment.*; when absent, all"`
}

// Webhook is an endpoint that receives events.
type Webhook struct {
	Actors
	ID        string              `json:"id"`
	Name      string              `json:"name"`
	URL       string              `json:"url"`
	Events    []string            `json:"events" nullable:"false"`
	Secret    string              `json:"secret,omitempty" doc:"Secret with which the endpoint verifies the signatures v1 (HMAC-SHA256); only in the answer to the request that creates the webhook or rotates its keys"`
	PublicKey string              `json:"public_key,omitempty" doc:"Key with which the endpoint verifies the signatures v1a (Ed25519), whpk_ and base64; absent until the keys of a webhook of an earlier release are rotated"`
	CreatedAt time.Time           `json:"created_at"`
	RotatedAt *time.Time          `json:"rotated_at,omitempty" doc:"When its keys were last rotated"`
	Earlier   *EarlierWebhookKeys `json:"earlier_keys,omitempty" doc:"The keys before the last rotation, while they sign, too"`
}

// EarlierWebhookKeys are the keys of a webhook before its last rotation.
type EarlierWebhookKeys struct {
	PublicKey string    `json:"public_key,omitempty"`
	Until     time.Time `json:"until" doc:"When they end"`
}

// RotateWebhookRequest replaces the keys of a webhook.
type RotateWebhookRequest struct {
	KeepHours int `json:"keep_hours" minimum:"0" maximum:"168" doc:"Hours for which the earlier keys sign, too; 0: they end at once"`
}

// WebhookDelivery is the delivery of one event to a webhook.
type WebhookDelivery struct {
	ID        string     `json:"id" doc:"ID of the event; the endpoint receives it in the header webhook-id"`
	Type      string     `json:"type"`
	Subject   string     `json:"subject"`
	EventTime time.Time  `json:"event_time"`
	State     string     `json:"state" enum:"pending,delivered,failed"`
	Attempts  int        `json:"attempts" doc:"Attempts since the delivery was last requested"`
	Status    int        `json:"status,omitempty" doc:"HTTP status of the endpoint's last answer"`
	Problem   string     `json:"problem,omitempty" doc:"Error of the last attempt"`
	LastAt    *time.Time `json:"last_at,omitempty" doc:"Time of the last attempt"`
	NextAt    *time.Time `json:"next_at,omitempty" doc:"Time of the next attempt"`
}
