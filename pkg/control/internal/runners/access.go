package runners

import (
	"context"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// StackOf returns the stack in which the runner is; false if it is in none, or
// serves whoever comes: what is granted is for one install.
func StackOf(tx *kernel.Tx, runner fairlead.RunnerID) (store.Stack, bool, error) {
	s, err := store.Optional(tx.Store.Stack(tx.Ctx, runner))
	return s.V, s.Version > 0, err
}

// SessionAccess returns the session's own way to its runner's queue, or nil if
// it has none: then it claims through the API. That it could not be had does not
// keep a runner from working.
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
		f.Logger.Warn("a session gets no access to its queue, and claims through the API", "runner", s.Runner, "error", err)
		return nil
	}
	return &a
}
