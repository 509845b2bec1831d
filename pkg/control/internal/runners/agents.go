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

// Agent is an agent that enrolled with a key.
type Agent struct {
	Key      string // id of the agent's key
	Enrolled time.Time
	Revoked  time.Time // zero: not revoked
	Session  *Session  // the agent's newest session among the runner's newest sessions; nil: none
}

// Agents lists the agents that enrolled with keys at a runner, oldest first. It does
// not list agents that authenticate by a role or as a service account: the vendor revokes the
// role or takes the service account away instead.
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

// RevokeAgent permanently revokes an agent's key and ends all sessions that the key
// opened, including those of a copied key. Running jobs continue, because they have
// leases of their own.
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

// enrolled returns an error if the key that opened the session is no longer enrolled, or
// is revoked.
func enrolled(tx *kernel.Tx, s store.Session) error {
	a, err := tx.Store.Agent(tx.Ctx, s.Runner, s.Agent)
	if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && !a.V.Revoked.IsZero() {
		return identity.NoLonger()
	}
	if err != nil {
		return fmt.Errorf("read the agent with the key %s: %w", s.Agent, err)
	}
	return nil
}

// MaxSessions is the largest number of open sessions of one key. An agent needs one
// session, and two for a short time. An agent that crashes repeatedly leaves sessions
// open.
const MaxSessions = 8

// MaxSharedSessions is the largest number of open sessions of one AWS role, or one OIDC
// subject, at a runner. All agents of a fleet share this identity. Each agent chooses the
// session name of its role, or the key that it uses with a token. So neither the session
// name nor the key identifies an agent.
const MaxSharedSessions = 100

// countSession records the new session under its identity. If the identity then has too
// many open sessions, countSession ends one session: a lost session, or, if no session is
// lost, the session with the oldest last heartbeat. If the new session were refused
// instead, an agent that restarted often could open no session until its old sessions
// expire, or while another holder of the identity keeps sessions open. The parameter
// shared is the identity of a session that was opened without an enrolled key.
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
		return fmt.Errorf("read the agent with the key %s: %w", s.Agent, err)
	}
	if a.V.Open, err = withSession(tx, a.V.Open, s, MaxSessions); err != nil {
		return err
	}
	tx.PutAgent(s.Agent, a)
	return nil
}

// withSession adds s to the open sessions of an identity. If there would be more than
// limit sessions, it ends one session.
func withSession(tx *kernel.Tx, open []store.OpenSession, s store.Session, limit int) ([]store.OpenSession, error) {
	open = slices.DeleteFunc(open, func(o store.OpenSession) bool { return !tx.Now.Before(o.Expires) })
	if len(open) >= limit {
		var err error
		if open, err = endOldest(tx, open, s, limit); err != nil {
			return nil, err
		}
	}
	return append(open, store.OpenSession{ID: s.ID, Expires: lastExpiry(s)}), nil
}

// endOldest returns the sessions that are still open, and ends one of them if there is
// no room for s. It stops reading at the first lost session, because reading all sessions
// of a fleet would cost a hundred reads. Usually there is a lost session, because an agent
// leaves one with each restart.
func endOldest(tx *kernel.Tx, open []store.OpenSession, s store.Session, limit int) ([]store.OpenSession, error) {
	var left []store.OpenSession
	var oldest store.Stored[store.Session]
	for i, o := range open {
		r, err := tx.Store.Session(tx.Ctx, s.Runner, o.ID)
		switch {
		case fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && r.V.Ended:
			continue
		case err != nil:
			return nil, fmt.Errorf("read session %s: %w", o.ID, err)
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
			tx.Logger.Warn("an identity has too many open sessions; the one last seen longest ago was ended", "runner", s.Runner, "identity", s.Agent, "limit", limit, "session", oldest.V.ID)
		}
		oldest.V.Ended = true
		tx.PutSession(oldest)
	}
	return left, nil
}

// revoked returns the refusal of a revoked key.
func revoked(code fairlead.Code) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: code, Details: map[string]string{"reason": "revoked"},
		Message: "the agent's key was revoked",
		Hint:    "To continue, the agent needs a new key: stop it, remove identity.key and identity.json from its data folder, and enrol it with a new token: {runner.enrol}."}
}
