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
		"A channel is a named pointer to a runner version. A runner whose configuration names\na channel should run that version; a version in its configuration has precedence.\n`fairlead runner show` shows what to do if it runs another version. The control plane\ndoes not replace agents. Only operators of the control plane can set channels.",
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
	cmd.Flags().StringVar(&in.Image, "image", "", "the runner `IMAGE` of that version, with digest; shown to the person who replaces an agent")
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
		Long:              "Deletes a channel. Runners that name it may then run any version.",
		Example:           "  fairlead runner channel delete stable",
		ValidArgsFunction: c.names(channelNames),
		RunE:              c.deletes("channel", (*client.Client).DeleteRunnerChannel),
	}
}
