package control

import (
	"context"

	"github.com/fairlead/fairlead/pkg/control/internal/runners"
)

// OpenSession opens a session of an agent, and returns it with its bearer token. If the
// agent reports about a customer's stack, a deployment that waited for what the stack
// grants now begins.
func (c *Control) OpenSession(ctx context.Context, p runners.SessionProof) (Session, string, error) {
	s, token, err := c.Fleet.OpenSession(ctx, p)
	if err == nil && p.Stack != nil {
		if err := c.BeginGranted(ctx, s.Runner); err != nil {
			c.Logger.Warn("cannot begin the deployment that waits for its stack; the next session tries again", "runner", s.Runner, "error", err)
		}
	}
	return s, token, err
}
