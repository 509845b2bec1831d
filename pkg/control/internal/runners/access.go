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
func (c *Fleet) StackOf(ctx context.Context, runner fairlead.RunnerID) (store.Stack, bool, error) {
	s, err := c.Store.Stack(ctx, runner)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return store.Stack{}, false, nil
	}
	return s.V, err == nil, err
}

// SessionAccess returns the session's own way to its runner's queue, or nil if
// it has none: then it claims through the API. That it could not be had does not
// keep a runner from working.
func (c *Fleet) SessionAccess(ctx context.Context, s store.Session) *identity.Access {
	if c.Access == nil {
		return nil
	}
	stack, ok, err := c.StackOf(ctx, s.Runner)
	if err == nil && !ok {
		return nil
	}
	var a identity.Access
	if err == nil {
		a, err = c.Access.Grant(ctx, identity.Scope{Runner: s.Runner, Install: stack.Install, App: stack.App, Queue: kernel.QueueName(s.Runner)})
	}
	if err != nil {
		c.Logger.Warn("a session gets no access to its queue, and claims through the API", "runner", s.Runner, "error", err)
		return nil
	}
	return &a
}
