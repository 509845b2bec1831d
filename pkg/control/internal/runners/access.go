package runners

import (
	"context"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/identity"
)

// SessionAccess returns credentials with which the session reads its runner's queue
// directly, or nil if the control plane has no such credentials or cannot get them: then
// the session claims through the API. The credentials name no install, because a runner
// may serve many. They are for agents of every kind, wherever they run. A failure to get
// credentials is logged and does not stop the runner.
func (f *Fleet) SessionAccess(ctx context.Context, s Session) *identity.Access {
	if f.Access == nil {
		return nil
	}
	a, err := f.Access.Grant(ctx, identity.Scope{Runner: s.Runner, Queue: kernel.QueueName(s.Runner)})
	if err != nil {
		f.Logger.Warn("cannot grant a session access to its queue; it claims through the API", "runner", s.Runner, "error", err)
		return nil
	}
	return &a
}
