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
		Example:           "  fairlead runner channel set stable v1.2.3 --image ghcr.io/fairlead/runner@sha256:…",
		ValidArgsFunction: c.names(channelNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Version = args[1]
			r, err := cl.SetRunnerChannel(ctx, args[0], in)
			return view.Done(r, "Channel %s is %s", r.Name, r.Version), err
		}),
	}
	cmd.Flags().StringVar(&in.Image, "image", "", "the runner's `IMAGE` of that version, with its digest; it is told to those who are to replace an agent")
	return cmd
}

func (c *cli) channelList() *cobra.Command {
	return list[view.Channels](c, "List channels", "There are no channels. `fairlead runner channel set NAME VERSION` makes one.", (*client.Client).ListRunnerChannels)
}

func (c *cli) channelDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Forget a channel",
		Long:              "Forgets a channel. Runners that follow it may run any version then.",
		ValidArgsFunction: c.names(channelNames),
		RunE:              c.deletes("channel", (*client.Client).DeleteRunnerChannel),
	}
}
