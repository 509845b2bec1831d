package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) runnerChannel() *cobra.Command {
	return noun("channel", "Say which version of the runner is wanted",
		"A runner whose configuration names a channel is to run the channel's version; one\nwith a version of its own, that one. Until it does, `fairlead runner show` says what\nis to be done. Nothing is replaced from here. Channels are for whoever runs the\ncontrol plane to set.",
		c.channelSet(), c.channelList(), c.channelDelete())
}

func (c *cli) channelSet() *cobra.Command {
	var in wire.SetRunnerChannelRequest
	cmd := &cobra.Command{
		Use: "set NAME VERSION", Short: "Say which version a channel is",
		Example: "  fairlead runner channel set stable v1.2.3 --image ghcr.io/fairlead/runner@sha256:…",
		Args:    exactly, ValidArgsFunction: c.names(channelNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			in.Version = args[1]
			r, err := cl.SetRunnerChannel(ctx, args[0], in)
			if err != nil {
				return err
			}
			return c.print(view.Channel(r))
		}),
	}
	cmd.Flags().StringVar(&in.Image, "image", "", "the runner's `IMAGE` of that version, with its digest; it is told to those who are to replace an agent")
	c.must(cmd.RegisterFlagCompletionFunc("image", cobra.NoFileCompletions))
	return cmd
}

func (c *cli) channelList() *cobra.Command {
	var shown extent
	cmd := &cobra.Command{
		Use: "list", Short: "List channels",
		Args: exactly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			channels, err := pages(ctx, c, shown, cl.ListRunnerChannels)
			if err != nil {
				return err
			}
			return listing(c, channels, view.Channels(channels), "There are no channels. `fairlead runner channel set NAME VERSION` makes one.")
		}),
	}
	limitFlag(cmd, &shown)
	return cmd
}

func (c *cli) channelDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Forget a channel",
		Long: "Forgets a channel. Runners that follow it may run any version then.",
		Args: exactly, ValidArgsFunction: c.names(channelNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			if err := cl.DeleteRunnerChannel(ctx, args[0]); err != nil {
				return err
			}
			return c.print(view.Deleted{Noun: "channel", Name: args[0]})
		}),
	}
}

func channelNames(ctx context.Context, cl *client.Client) ([]string, error) {
	return offerOf(cl.ListRunnerChannels, func(r wire.RunnerChannel) (string, string) { return r.Name, r.Version })(ctx)
}
