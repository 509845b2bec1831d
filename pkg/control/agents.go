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
		return identity.NoLonger()
	}
	if err != nil {
		return fmt.Errorf("look at the agent with the key %s: %w", s.Agent, err)
	}
	return nil
}

// MaxSessions is how many sessions a key has open at most. An agent has one, and
// for a moment two; one that crashes again and again leaves some behind.
const MaxSessions = 8

// countSession notes that the agent's key opens the session, and ends the one of
// its others that was last seen longest ago if these are too many. To refuse the
// new one instead would keep an agent out for as long as sessions last, after some
// restarts, or for as long as another holder of its key likes.
func (u *unit) countSession(s store.Session) error {
	a, err := u.c.Store.Agent(u.ctx, s.Runner, s.Agent)
	if err != nil {
		return fmt.Errorf("look at the agent with the key %s: %w", s.Agent, err)
	}
	a.V.Open = slices.DeleteFunc(a.V.Open, func(o store.OpenSession) bool { return !u.now.Before(o.Expires) })
	if len(a.V.Open) >= MaxSessions {
		if err := u.endOldest(&a.V); err != nil {
			return err
		}
	}
	a.V.Open = append(a.V.Open, store.OpenSession{ID: s.ID, Expires: s.Expires})
	u.PutAgent(s.Agent, a)
	return nil
}

// endOldest takes those sessions of the agent off its list that are over, and ends
// one if none is.
func (u *unit) endOldest(a *store.Agent) error {
	var left []store.OpenSession
	var oldest store.Stored[store.Session]
	for _, o := range a.Open {
		r, err := u.c.Store.Session(u.ctx, a.Runner, o.ID)
		switch {
		case fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && r.V.Ended:
			continue
		case err != nil:
			return fmt.Errorf("look at session %s: %w", o.ID, err)
		case oldest.V.ID == "" || r.V.LastSeen.Before(oldest.V.LastSeen):
			oldest = r
		}
		left = append(left, o)
	}
	if len(left) >= MaxSessions {
		oldest.V.Ended = true
		u.PutSession(oldest)
		left = slices.DeleteFunc(left, func(o store.OpenSession) bool { return o.ID == oldest.V.ID })
		u.c.Logger.Warn("an agent's key has too many sessions open: the one that was last seen longest ago ends", "runner", a.Runner, "key", events.KeyID(a.PublicKey), "session", oldest.V.ID)
	}
	a.Open = left
	return nil
}

// revoked says that a key is not taken any more.
func revoked(code string) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: code, Details: map[string]string{"reason": "revoked"},
		Message: "the agent's key was revoked",
		Hint:    "An agent that is to go on needs another key: stop it, remove identity.key and identity.json from its data folder, and enrol it with a new token: `fairlead runner enrol NAME`."}
}
