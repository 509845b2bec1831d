package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) webhook() *cobra.Command {
	return noun("webhook", "Tell other systems of events",
		"A webhook is an endpoint of yours that is sent events: CloudEvents, signed as\nStandard Webhooks has it.",
		c.webhookCreate(), c.webhookList(), c.webhookDelete(), c.webhookDeliveries(), c.webhookRedeliver())
}

func (c *cli) webhookCreate() *cobra.Command {
	var in wire.CreateWebhookRequest
	cmd := &cobra.Command{
		Use: "create NAME --endpoint URL", Short: "Make a webhook, and print its secret once",
		Long: `Makes a webhook, and prints the secret by which the endpoint verifies signatures;
it is never shown again. The endpoint is reached by https at a public address.

Each event comes at least once, and in no order. What is not answered with a
status of 2xx is sent again, eight times within 7 h 36 min.`,
		Example: `  fairlead webhook create ops --endpoint https://ops.example.com/hooks --event fairlead.job.failed --event 'fairlead.deployment.*'`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Name = args[0]
			w, err := cl.CreateWebhook(ctx, in)
			return view.Done(w, "Created webhook %s\n  Its secret is shown once: %s", w.Name, w.Secret), err
		}),
	}
	cmd.Flags().StringVar(&in.URL, "endpoint", "", "the `URL` that events are sent to (required)")
	cmd.Flags().StringArrayVar(&in.Events, "event", nil, "a `TYPE` of events, or all below one with .*; may be repeated (default all)")
	return cmd
}

func (c *cli) webhookList() *cobra.Command {
	return list[view.Webhooks](c, "List webhooks", "There are no webhooks. `fairlead webhook create NAME --endpoint URL` makes one.", (*client.Client).ListWebhooks)
}

func (c *cli) webhookDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a webhook", ValidArgsFunction: c.names(webhookNames),
		RunE: c.deletes("webhook", (*client.Client).DeleteWebhook),
	}
}

func (c *cli) webhookDeliveries() *cobra.Command {
	var shown extent
	cmd := &cobra.Command{
		Use: "deliveries NAME", Short: "List what was delivered to a webhook, the newest event first", ValidArgsFunction: c.names(webhookNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			list, err := pages(ctx, c, shown, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.WebhookDelivery], error) {
				return cl.ListDeliveries(ctx, args[0], o)
			})
			if err != nil {
				return err
			}
			return listing(c, list, view.Deliveries(list), "Nothing was delivered to it within the last 30 days.")
		}),
	}
	newestFlags(cmd, &shown)
	return cmd
}

func (c *cli) webhookRedeliver() *cobra.Command {
	return &cobra.Command{
		Use: "redeliver NAME EVENT", Short: "Deliver an event to a webhook again",
		Long:              "Delivers an event that `fairlead webhook deliveries NAME` lists once more, also\none that arrived. The endpoint sees the same webhook-id.",
		Example:           "  fairlead webhook redeliver ops evt_01kaj4w1q8example0000000000",
		ValidArgsFunction: c.names(webhookNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			d, err := cl.RedeliverWebhook(ctx, args[0], args[1])
			return view.Done(d, "%s is delivered to webhook %s again", d.ID, args[0]), err
		}),
	}
}
