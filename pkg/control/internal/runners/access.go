package runners

import (
	"context"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// StackOf returns the customer's stack that the runner is part of. It returns false if
// the runner is in no stack. Direct access is granted for exactly one install, and only a
// runner in a stack serves exactly one install.
func StackOf(tx *kernel.Tx, runner fairlead.RunnerID) (store.Stack, bool, error) {
	s, err := store.Optional(tx.Store.Stack(tx.Ctx, runner))
	return s.V, s.Version > 0, err
}

// SessionAccess returns credentials with which the session reads its runner's queue
// directly, or nil if the session claims through the API. A failure to get credentials
// is logged and does not stop the runner.
func (f *Fleet) SessionAccess(ctx context.Context, s Session) *identity.Access {
	if f.Access == nil {
		return nil
	}
	stack, ok, err := StackOf(f.Reading(ctx), s.Runner)
	if err == nil && !ok {
		return nil
	}
	var a identity.Access
	if err == nil {
		a, err = f.Access.Grant(ctx, identity.Scope{Runner: s.Runner, Install: stack.Install, App: stack.App, Queue: kernel.QueueName(s.Runner)})
	}
	if err != nil {
		f.Logger.Warn("cannot grant a session access to its queue; it claims through the API", "runner", s.Runner, "error", err)
		return nil
	}
	return &a
}
