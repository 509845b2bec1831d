package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// rescueRoutes registers the routes with which a person repairs an install after a
// tool died.
func (s *server) rescueRoutes(c *control.Control) {
	type unlock struct {
		InstallPath
		ComponentPath
		LockID string `query:"lock_id" maxLength:"200" form:"text" doc:"Break only this lock; any lock when absent"`
	}
	register(s, op{Route: wire.UnlockState, auth: apiToken, may: on(access.EditInstall), tag: "Installs", summary: "Break a state lock that a dead tool left", status: http.StatusNoContent,
		problems: slices.Concat(ofAVersion, storesMuch, codes{fairlead.CodeInstallNotFound, fairlead.CodeComponentNotFound, fairlead.CodeStateLocked, fairlead.CodeStateNotLocked, fairlead.CodeLockChanged})},
		func(ctx context.Context, in *unlock) (*struct{}, error) {
			return nil, c.BreakStateLock(ctx, callerOf(ctx).org, in.Install, in.Component, in.LockID)
		})
	type push struct {
		InstallPath
		ComponentPath
		RawBody []byte `contentType:"application/octet-stream"`
	}
	register(s, op{Route: wire.PushState, auth: apiToken, may: on(access.EditInstall), tag: "Installs", summary: "Upload a state that a tool could not save",
		doc:  "Only for installs whose runner keeps its states at the control plane. The state must be of the component's lineage, and newer than the current one.",
		body: control.MaxState, read: 2 * time.Minute,
		problems: slices.Concat(storesMuch, codes{fairlead.CodeInstallNotFound, fairlead.CodeComponentNotFound, fairlead.CodeRunnerNotFound, fairlead.CodeDeploymentRuns, fairlead.CodeStateMoving, fairlead.CodeInvalidState, fairlead.CodeNoState, fairlead.CodeStateLocked, fairlead.CodeStateLineage, fairlead.CodeStateOlder, fairlead.CodeStateInClear, fairlead.CodeStateOnRunner, fairlead.CodeStateTooLarge})},
		func(ctx context.Context, in *push) (*body[wire.PushedState], error) {
			h, err := c.PushState(ctx, callerOf(ctx).org, in.Install, in.Component, in.RawBody)
			return answer(wire.PushedState{Component: in.Component, Serial: h.Serial, Size: h.Size, SavedAt: h.Saved.UTC()}, err)
		})
}
