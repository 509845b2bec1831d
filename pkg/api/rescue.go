package api

import (
	"context"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
)

// rescueRoutes are a person's way out when a tool died at the wrong moment.
func (s *server) rescueRoutes(c *control.Control) {
	type unlock struct {
		InstallPath
		ComponentPath
		LockID string `query:"lock_id" maxLength:"200" form:"text" doc:"The lock that was looked at; another one is not broken. Whichever there is when absent"`
	}
	register(s, op{Route: wire.UnlockState, auth: apiToken, tag: "Installs", summary: "Break a lock that a dead tool left", status: http.StatusNoContent,
		problems: ofAVersion + " install-not-found component-not-found state-locked state-not-locked lock-changed " + storesMuch},
		func(ctx context.Context, in *unlock) (*struct{}, error) {
			return nil, c.BreakStateLock(ctx, callerOf(ctx).org, in.Install, in.Component, in.LockID)
		})
	type push struct {
		InstallPath
		ComponentPath
		RawBody []byte `contentType:"application/octet-stream"`
	}
	register(s, op{Route: wire.PushState, auth: apiToken, tag: "Installs", summary: "Put a state in place that a tool could not save",
		doc:  "Of installs whose runner keeps its states at the control plane. The state must be of the component's lineage, and newer than the current one.",
		body: control.MaxState, read: 2 * time.Minute,
		problems: "install-not-found component-not-found runner-not-found deployment-runs state-moving invalid-state no-state state-locked state-lineage state-older state-on-runner state-too-large " + storesMuch},
		func(ctx context.Context, in *push) (*body[wire.PushedState], error) {
			h, err := c.PushState(ctx, callerOf(ctx).org, in.Install, in.Component, in.RawBody)
			return answer(wire.PushedState{Component: in.Component, Serial: h.Serial, Size: h.Size, SavedAt: h.Saved.UTC()}, err)
		})
}
