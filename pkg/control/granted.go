package control

import (
	"context"

	"github.com/fairlead/fairlead/pkg/control/internal/runners"
)

// OpenSession opens or renews a session of an agent. If the
// agent reports about a customer's stack, a deployment that waited for what the stack
// grants now begins.
func (c *Control) OpenSession(ctx context.Context, p runners.SessionProof) (OpenedSession, error) {
	s, err := c.Fleet.OpenSession(ctx, p)
	if err == nil && s.Reported != nil {
		if err := c.BeginGranted(ctx, *s.Reported); err != nil {
			c.Logger.Warn("cannot begin the deployment that waits for its stack; the next session tries again", "runner", s.Runner, "error", err)
		}
	}
	return s, err
}
