package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// Agent is an agent that has enrolled with a key.
type Agent struct {
	Key      string // id of its key
	Enrolled time.Time
	Revoked  time.Time // zero: it is good
	Session  *Session  // its last of which the table still has something among the runner's last; nil: there is none
}

// Agents lists the agents that have enrolled with keys for a runner, in the order
// in which they did. Those that prove who they are otherwise are not among them:
// a trust, or a role, is taken away as one.
func (c *Control) Agents(ctx context.Context, by User, runner string) ([]Agent, error) {
	r, err := c.ownRunner(ctx, by, runner)
	if err != nil {
		return nil, err
	}
	stored, err := c.Store.Agents(ctx, r.V.ID)
	if err != nil {
		return nil, err
	}
	known, err := c.runner(ctx, r.V)
	if err != nil {
		return nil, err
	}
	out := make([]Agent, 0, len(stored))
	for _, a := range stored {
		v := Agent{Key: events.KeyID(a.V.PublicKey), Enrolled: a.V.Enrolled, Revoked: a.V.Revoked}
		if i := slices.IndexFunc(known.Sessions, func(s Session) bool { return s.Agent == v.Key }); i >= 0 {
			v.Session = &known.Sessions[i]
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b Agent) int { return a.Enrolled.Compare(b.Enrolled) })
	return out, nil
}

// RevokeAgent refuses an agent's key from now on, for good, and ends the sessions
// that it has opened, also those of a copy of the key. Running jobs go on to their
// end under leases of their own.
func (c *Control) RevokeAgent(ctx context.Context, by User, runner, key string) error {
	return c.transact(ctx, "revoke key "+key+" of runner "+runner, func(u *unit) error {
		r, err := c.ownRunner(ctx, by, runner)
		if err != nil {
			return err
		}
		a, err := c.Store.Agent(ctx, r.V.ID, key)
		if err != nil || !a.V.Revoked.IsZero() {
			return err
		}
		a.V.Revoked = u.now
		u.PutAgent(key, a)
		return nil
	})
}

// enrolled returns nil if the key that has opened the session is still good.
func (c *Control) enrolled(ctx context.Context, s store.Session) error {
	a, err := c.Store.Agent(ctx, s.Runner, s.Agent)
	if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && !a.V.Revoked.IsZero() {
		return identity.Unauthenticated()
	}
	if err != nil {
		return fmt.Errorf("look at the agent with the key %s: %w", s.Agent, err)
	}
	return nil
}

// revoked says that a key is not taken any more.
func revoked(code string) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: code, Details: map[string]string{"reason": "revoked"},
		Message: "the agent's key was revoked",
		Hint:    "An agent that is to go on needs another key: stop it, remove identity.key and identity.json from its data folder, and enrol it with a new token: `fairlead runner enrol NAME`."}
}
