package runners

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
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
func (f *Fleet) Agents(ctx context.Context, by kernel.User, runner string) ([]Agent, error) {
	r, err := OwnRunner(f.Reading(ctx), by, runner)
	if err != nil {
		return nil, err
	}
	stored, err := f.Store.Agents(ctx, r.V.ID)
	if err != nil {
		return nil, err
	}
	known, err := WithSessions(f.Reading(ctx), r.V)
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
func (f *Fleet) RevokeAgent(ctx context.Context, by kernel.User, runner, key string) error {
	return f.Transact(ctx, "revoke key "+key+" of runner "+runner, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		a, err := f.Store.Agent(ctx, r.V.ID, key)
		if err != nil || !a.V.Revoked.IsZero() {
			return err
		}
		a.V.Revoked = tx.Now
		tx.PutAgent(key, a)
		return nil
	})
}

// enrolled returns nil if the key that has opened the session is still good.
func enrolled(tx *kernel.Tx, s store.Session) error {
	a, err := tx.Store.Agent(tx.Ctx, s.Runner, s.Agent)
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

// MaxSharedSessions is how many sessions of a runner an AWS role, or the subject of
// OIDC tokens, has open at most. All agents of a fleet share one: the name of a
// role's session, and the key that goes with a token, are of their holder's choice.
const MaxSharedSessions = 100

// countSession notes that its identity opens the session, and ends one of its others
// if these are too many: one that counts as lost, or else the one that was last seen
// longest ago. To refuse the new one instead would keep an agent out for as long as
// sessions last, after some restarts, or for as long as another holder of its identity
// likes. shared is the identity of a session that was opened without an enrolled key.
func countSession(tx *kernel.Tx, s store.Session, shared string) error {
	if !s.Enrolled {
		of := identity.Hash(shared)
		r, err := tx.Store.OpenSessions(tx.Ctx, s.Runner, of)
		if err == nil {
			r.V.Open, err = withSession(tx, r.V.Open, s, MaxSharedSessions)
		}
		if err != nil {
			return err
		}
		tx.PutOpenSessions(of, r)
		return nil
	}
	a, err := tx.Store.Agent(tx.Ctx, s.Runner, s.Agent)
	if err != nil {
		return fmt.Errorf("look at the agent with the key %s: %w", s.Agent, err)
	}
	if a.V.Open, err = withSession(tx, a.V.Open, s, MaxSessions); err != nil {
		return err
	}
	tx.PutAgent(s.Agent, a)
	return nil
}

// withSession returns the sessions that an identity has open once it has opened s,
// at most limit.
func withSession(tx *kernel.Tx, open []store.OpenSession, s store.Session, limit int) ([]store.OpenSession, error) {
	open = slices.DeleteFunc(open, func(o store.OpenSession) bool { return !tx.Now.Before(o.Expires) })
	if len(open) >= limit {
		var err error
		if open, err = endOldest(tx, open, s, limit); err != nil {
			return nil, err
		}
	}
	return append(open, store.OpenSession{ID: s.ID, Expires: s.Expires}), nil
}

// endOldest returns those of the sessions that are not over, and ends one for s if
// none is. It looks no further than to one that counts as lost, such as an agent leaves
// behind with each session that it opens: a fleet would read a hundred each time.
func endOldest(tx *kernel.Tx, open []store.OpenSession, s store.Session, limit int) ([]store.OpenSession, error) {
	var left []store.OpenSession
	var oldest store.Stored[store.Session]
	for i, o := range open {
		r, err := tx.Store.Session(tx.Ctx, s.Runner, o.ID)
		switch {
		case fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && r.V.Ended:
			continue
		case err != nil:
			return nil, fmt.Errorf("look at session %s: %w", o.ID, err)
		case oldest.V.ID == "" || r.V.LastSeen.Before(oldest.V.LastSeen):
			oldest = r
		}
		left = append(left, o)
		if sessionState(tx.Kernel, r.V) == "lost" {
			oldest, left = r, append(left, open[i+1:]...)
			break
		}
	}
	if len(left) >= limit {
		left = slices.DeleteFunc(left, func(o store.OpenSession) bool { return o.ID == oldest.V.ID })
		if sessionState(tx.Kernel, oldest.V) != "lost" {
			tx.Logger.Warn("an identity has too many sessions open: the one that was last seen longest ago ends", "runner", s.Runner, "identity", s.Agent, "limit", limit, "session", oldest.V.ID)
		}
		oldest.V.Ended = true
		tx.PutSession(oldest)
	}
	return left, nil
}

// revoked says that a key is not taken any more.
func revoked(code fairlead.Code) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: code, Details: map[string]string{"reason": "revoked"},
		Message: "the agent's key was revoked",
		Hint:    "An agent that is to go on needs another key: stop it, remove identity.key and identity.json from its data folder, and enrol it with a new token: {runner.enrol}."}
}
