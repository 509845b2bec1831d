package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// stackOf returns the stack in which the runner is; false if it is in none, or
// serves whoever comes: what is granted is for one install.
func (c *Control) stackOf(ctx context.Context, runner fairlead.RunnerID) (store.Stack, bool, error) {
	s, err := c.Store.Stack(ctx, runner)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return store.Stack{}, false, nil
	}
	return s.V, err == nil, err
}

// SessionAccess returns the session's own way to its runner's queue, or nil if
// it has none: then it claims through the API. That it could not be had does not
// keep a runner from working.
func (c *Control) SessionAccess(ctx context.Context, s store.Session) *identity.Access {
	if c.Access == nil {
		return nil
	}
	stack, ok, err := c.stackOf(ctx, s.Runner)
	if err == nil && !ok {
		return nil
	}
	var a identity.Access
	if err == nil {
		a, err = c.Access.Grant(ctx, identity.Scope{Runner: s.Runner, Install: stack.Install, App: stack.App, Queue: queueName(s.Runner)})
	}
	if err != nil {
		c.Logger.Warn("a session gets no access to its queue, and claims through the API", "runner", s.Runner, "error", err)
		return nil
	}
	return &a
}

// AttemptAccess returns the holder's own way to its attempt's log and artifacts.
// A job that has none is of KindNotFound: its log goes through the API.
func (c *Control) AttemptAccess(ctx context.Context, h Holder) (identity.Access, error) {
	r, err := c.held(ctx, h)
	if err != nil {
		return identity.Access{}, err
	}
	none := &fairlead.Error{Kind: fairlead.KindNotFound, Code: "no-log-access",
		Message: fmt.Sprintf("job %s has no way to its log but the API", h.Job)}
	if c.Access == nil || r.V.Install == "" {
		return identity.Access{}, none
	}
	stack, ok, err := c.stackOf(ctx, r.V.Runner)
	if err != nil {
		return identity.Access{}, err
	}
	if !ok || stack.Install != r.V.Install {
		return identity.Access{}, none
	}
	a, err := c.Access.Grant(ctx, identity.Scope{Runner: r.V.Runner, Install: stack.Install, App: stack.App, Job: h.Job, Epoch: h.Epoch})
	if err != nil {
		return a, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: "log-access-unavailable", Message: "access to the log could not be had", Hint: "Write it through the API, or ask again.", Err: err}
	}
	return a, nil
}

// ClaimJob is Claim for an agent that has the wake-up of a job already. It does
// not wait. A runner that takes no work is told so by an error: its agent is to
// leave the queue alone, where the API's claims do.
func (c *Control) ClaimJob(ctx context.Context, s store.Session, id fairlead.JobID) (Claim, error) {
	if s.Draining {
		return Claim{}, ErrNoWork
	}
	notTaking := fairlead.Conflict("runner-not-taking", "runner %s takes no work now: it is disabled, draining, paused, or at its limit", s.Runner)
	limit, taking, err := c.takes(ctx, s)
	if err != nil {
		return Claim{}, err
	}
	if !taking {
		return Claim{}, notTaking
	}
	claimed, err := c.claim(ctx, s, id, limit)
	if errors.Is(err, errFull) {
		err = notTaking
	}
	return claimed, err
}
