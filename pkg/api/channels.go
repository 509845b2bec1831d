package api

import (
	"context"
	"net/http"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// ChannelPath names an update channel.
type ChannelPath struct {
	Channel string `path:"channel" maxLength:"63" form:"name" doc:"Name of the update channel"`
}

func (s *server) channelRoutes(c *control.Control) {
	type set struct {
		ChannelPath
		Body wire.SetRunnerChannelRequest
	}
	register(s, op{Route: wire.SetRunnerChannel, auth: apiToken, may: onShared(access.Operate), tag: "Runners", summary: "Set the version of an update channel",
		doc:      "Runners whose configuration names the channel should run that version. Their agents are notified, and are shown as outdated until they run it. The control plane does not replace them.",
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeInvalidName, fairlead.CodeInvalidVersion, fairlead.CodeInvalidImage}},
		func(ctx context.Context, in *set) (*body[wire.RunnerChannel], error) {
			r, err := c.SetChannel(ctx, callerOf(ctx).user, in.Channel, in.Body.Version, in.Body.Image)
			return answer(renderChannel(r), err)
		})
	register(s, op{Route: wire.ListRunnerChannels, auth: apiToken, may: onShared(access.View), tag: "Runners", summary: "List update channels by name",
		problems: append(codes{fairlead.CodeRoleMissing}, listing...)},
		func(ctx context.Context, in *ListInput) (*paged[wire.RunnerChannel], error) {
			return list(in, all[control.Channel](), renderChannel, func(q fairlead.PageQuery) ([]control.Channel, string, error) { return c.Channels(ctx, q) })
		})
	register(s, op{Route: wire.DeleteRunnerChannel, auth: apiToken, may: onShared(access.Operate), tag: "Runners", summary: "Delete an update channel", status: http.StatusNoContent,
		doc:      "Afterwards, runners that follow it may run any version.",
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeChannelNotFound}},
		func(ctx context.Context, in *ChannelPath) (*struct{}, error) {
			return nil, c.DeleteChannel(ctx, callerOf(ctx).user, in.Channel)
		})
}

func renderChannel(r control.Channel) wire.RunnerChannel {
	return wire.RunnerChannel{Name: r.Name, Version: r.Version, Image: r.Image, SetAt: r.Set.UTC()}
}

func renderWanted(w *control.Wanted) *wire.WantedVersion {
	if w == nil {
		return nil
	}
	return &wire.WantedVersion{Version: w.Version, Image: w.Image, Channel: w.Channel}
}
