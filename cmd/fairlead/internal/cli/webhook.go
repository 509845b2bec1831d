package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) webhook() *cobra.Command {
	return noun("webhook", "Send events to other systems",
		"A webhook sends events to your HTTPS endpoint. Each event is a CloudEvent, signed as\nthe Standard Webhooks specification defines, with a secret and with an Ed25519 key.",
		c.webhookCreate(), c.webhookList(), c.webhookRotate(), c.webhookRevoke(), c.webhookDelete(), c.webhookDeliveries(), c.webhookRedeliver())
}

func (c *cli) webhookCreate() *cobra.Command {
	var in wire.CreateWebhookRequest
	cmd := &cobra.Command{
		Use: "create NAME --endpoint URL", Short: "Create a webhook and print its secret once",
		Long: `Creates a webhook and prints its secret once, and its public key. The endpoint needs one
of them to verify the signatures of events: the secret for signatures v1, the public key
for signatures v1a. The endpoint must have an https URL with a public address.

Each event is delivered at least once. Events can arrive in any order. If the endpoint
does not answer with a 2xx status, Fairlead sends the event again, up to seven times
within 7 h 36 min.`,
		Example: `  fairlead webhook create ops --endpoint https://ops.example.com/hooks --event fairlead.job.failed --event 'fairlead.deployment.*'`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Name = args[0]
			w, err := cl.CreateWebhook(ctx, in)
			return view.Done(w, "Created webhook %s\n  Its secret is shown once: %s\n  Its public key: %s", w.Name, w.Secret, w.PublicKey), err
		}),
	}
	cmd.Flags().StringVar(&in.URL, "endpoint", "", "the `URL` that receives events (required)")
	cmd.Flags().StringArrayVar(&in.Events, "event", nil, "send only events of this `TYPE`, such as fairlead.job.failed or fairlead.job.*; can be repeated (default: all events)")
	return cmd
}

func (c *cli) webhookList() *cobra.Command {
	return list[view.Webhooks](c, about{
		short:   "List webhooks",
		long:    "Lists the webhooks with their endpoints and event types.",
		example: "fairlead webhook list",
		none:    "There are no webhooks. `fairlead webhook create NAME --endpoint URL` creates one.",
	}, (*client.Client).ListWebhooks)
}

func (c *cli) webhookRotate() *cobra.Command {
	keep := 24 * time.Hour
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "Replace the keys of a webhook",
		Long: `Creates new keys for a webhook, and prints the new secret once, and the public key. For
the time --keep the earlier keys sign each event, too: an endpoint accepts an event if
one of its signatures is valid. Change the endpoint meanwhile. At most two pairs of keys
sign: another rotation ends the keys before the last one.`,
		Example:           "  fairlead webhook rotate ops\n  fairlead webhook rotate ops --keep 0s",
		ValidArgsFunction: c.names(webhookNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if keep < 0 || keep > 168*time.Hour || keep%time.Hour != 0 {
				return nil, usage("", "--keep is %s; it must be whole hours, from 0s to 168h", keep)
			}
			w, err := cl.RotateWebhook(ctx, args[0], wire.RotateWebhookRequest{KeepHours: int(keep / time.Hour)})
			until := "The earlier keys do not sign any more."
			if w.Earlier != nil {
				until = "The earlier keys sign, too, until " + view.Time(w.Earlier.Until) + "."
			}
			return view.Done(w, "Rotated the keys of webhook %s. %s\n  Its secret is shown once: %s\n  Its public key: %s", args[0], until, w.Secret, w.PublicKey), err
		}),
	}
	cmd.Flags().DurationVar(&keep, "keep", keep, "how long the earlier keys sign, too: whole hours, `DURATION` such as 24h")
	return cmd
}

func (c *cli) webhookRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "End the earlier keys of a webhook",
		Long:              "Ends the keys that a webhook had before its last rotation, if they still sign.",
		Example:           "  fairlead webhook revoke ops",
		ValidArgsFunction: c.names(webhookNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			w, err := cl.RevokeWebhookKeys(ctx, args[0])
			return view.Done(w, "Only the newest keys of webhook %s sign", args[0]), err
		}),
	}
}

func (c *cli) webhookDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a webhook",
		Long:              "Deletes a webhook. Fairlead sends it no more events.",
		Example:           "  fairlead webhook delete ops",
		ValidArgsFunction: c.names(webhookNames),
		RunE:              c.deletes("webhook", (*client.Client).DeleteWebhook),
	}
}

func (c *cli) webhookDeliveries() *cobra.Command {
	var shown extent
	cmd := &cobra.Command{
		Use: "deliveries NAME", Short: "List a webhook's deliveries, newest event first",
		Long:              "Lists the events of the last 30 days for a webhook. For each event, shows the state of\nthe delivery and the last answer of the endpoint.",
		Example:           "  fairlead webhook deliveries ops --limit 10",
		ValidArgsFunction: c.names(webhookNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			list, err := pages(ctx, c, shown, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.WebhookDelivery], error) {
				return cl.ListDeliveries(ctx, args[0], o)
			})
			if err != nil {
				return err
			}
			return listing(c, list, view.Deliveries(list), "The webhook had no events in the last 30 days.")
		}),
	}
	newestFlags(cmd, &shown)
	return cmd
}

func (c *cli) webhookRedeliver() *cobra.Command {
	return &cobra.Command{
		Use: "redeliver NAME EVENT", Short: "Send an event to a webhook again",
		Long:              "Sends an event to a webhook again, even if the event was already delivered. EVENT is\nan ID from 'fairlead webhook deliveries NAME'. The webhook-id of the event does not\nchange.",
		Example:           "  fairlead webhook redeliver ops evt_01kaj4w1q8example0000000000",
		ValidArgsFunction: c.names(webhookNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			d, err := cl.RedeliverWebhook(ctx, args[0], args[1])
			return view.Done(d, "Event %s is being sent to webhook %s again", d.ID, args[0]), err
		}),
	}
}
