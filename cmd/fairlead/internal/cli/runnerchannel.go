package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) runnerChannel() *cobra.Command {
	return noun("channel", "Manage the versions that runners should run",
		"A channel is a name for a version of the runner program, such as \"stable\". The\nconfiguration of a runner can name a channel or a version, but not both. The\nrunner's agents should run this version. If an agent runs another version, 'fairlead\nrunner show' shows what to do. The control plane does not replace agents. Only\noperators of the control plane can set channels.",
		c.channelSet(), c.channelList(), c.channelDelete())
}

func (c *cli) channelSet() *cobra.Command {
	var in wire.SetRunnerChannelRequest
	cmd := &cobra.Command{
		Use: "set NAME VERSION", Short: "Set a channel's version",
		Long:              "Sets the version of a channel, and creates the channel if it does not exist.",
		Example:           "  fairlead runner channel set stable v1.2.3 --image ghcr.io/fairlead/runner@sha256:…",
		ValidArgsFunction: c.names(channelNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Version = args[1]
			r, err := cl.SetRunnerChannel(ctx, args[0], in)
			return view.Done(r, "Channel %s is %s", r.Name, r.Version), err
		}),
	}
	cmd.Flags().StringVar(&in.Image, "image", "", "the runner `IMAGE` of the version, with its digest; it is shown to people who must replace an agent")
	return cmd
}

func (c *cli) channelList() *cobra.Command {
	return list[view.Channels](c, about{
		short:   "List channels",
		long:    "Lists the channels with their versions and images.",
		example: "fairlead runner channel list",
		none:    "There are no channels. `fairlead runner channel set NAME VERSION` creates one.",
	}, (*client.Client).ListRunnerChannels)
}

func (c *cli) channelDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a channel",
		Long:              "Deletes a channel. Runners whose configuration names the channel may then run any\nversion.",
		Example:           "  fairlead runner channel delete stable",
		ValidArgsFunction: c.names(channelNames),
		RunE:              c.deletes("channel", (*client.Client).DeleteRunnerChannel),
	}
}
