package runners

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/store"
)

// Trust says which OIDC tokens open sessions of a runner.
type Trust struct {
	Name             string
	Rule             TrustRule
	Created, Changed time.Time
}

func trustView(t store.Trust) Trust {
	return Trust{Name: t.Name, Rule: t.Rule, Created: t.Created, Changed: t.Changed}
}

// TrustRule is what a trust says.
type TrustRule = oidc.Trust

// NewTrust says what trust to make.
type NewTrust struct {
	Name string    `json:"name"`
	Rule TrustRule `json:"rule"`
}

// prefixTrust begins the revisions of trusts.
const prefixTrust = "tru"

// checkTrust returns why in is no trust of this control plane, or nil.
func (f *Fleet) checkTrust(in NewTrust) error {
	if err := fairlead.CheckName("trust", in.Name); err != nil {
		return err
	}
	var rules oidc.Rules
	if f.OIDC != nil {
		rules = f.OIDC.Rules()
	}
	return in.Rule.Check(rules)
}

// CreateTrust has a runner trust an OIDC issuer's tokens that say certain
// things. Whoever has one may open sessions of the runner from then on.
func (f *Fleet) CreateTrust(ctx context.Context, by kernel.User, runner string, in NewTrust, key string) (Trust, error) {
	if err := f.checkTrust(in); err != nil {
		return Trust{}, err
	}
	rev := f.IDs(prefixTrust)
	var out Trust
	err := f.Transact(ctx, "create trust "+in.Name+" of runner "+runner, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		old, found := f.Store.Trust(ctx, r.V.ID, in.Name)
		again, err := tx.Seen(kernel.Once{Org: by.Org, Route: "create-trust " + string(r.V.ID), Key: key, Body: in}, in.Name)
		if err != nil {
			return err
		}
		switch {
		case found == nil && (again != "" || old.V.Rev == rev):
			out = trustView(old.V)
			return nil // the same request, or our own commit, whose answer was unclear
		case found == nil:
			return fairlead.Conflict(fairlead.CodeTrustExists, "runner %s has a trust %q already", runner, in.Name)
		case fairlead.KindOf(found) != fairlead.KindNotFound:
			return found
		case again != "": // made by the same request, and deleted since
			return found
		case r.V.Leaving:
			return Leaving(r.V)
		case len(r.V.Trusts) >= oidc.MaxTrusts:
			return fairlead.Conflict(fairlead.CodeTooManyTrusts, "runner %s has %d trusts, as many as there can be", runner, len(r.V.Trusts))
		}
		t := store.Trust{Runner: r.V.ID, Name: in.Name, Rev: rev, Rule: in.Rule, Created: tx.Now, Changed: tx.Now}
		tx.PutTrust(store.Stored[store.Trust]{V: t})
		out = trustView(t)
		r.V.Trusts = append(slices.Clone(r.V.Trusts), in.Name)
		slices.Sort(r.V.Trusts)
		tx.PutRunner(r)
		return nil
	})
	return out, err
}

// Trusts lists a runner's trusts by name.
func (f *Fleet) Trusts(ctx context.Context, by kernel.User, runner string) ([]Trust, error) {
	r, err := OwnRunner(f.Reading(ctx), by, runner)
	if err != nil {
		return nil, err
	}
	stored, err := f.Store.Trusts(ctx, r.V.ID)
	out := make([]Trust, 0, len(stored))
	for _, t := range stored {
		out = append(out, trustView(t.V))
	}
	return out, err
}

// Trust returns a trust of a runner.
func (f *Fleet) Trust(ctx context.Context, by kernel.User, runner, name string) (Trust, error) {
	r, err := OwnRunner(f.Reading(ctx), by, runner)
	if err != nil {
		return Trust{}, err
	}
	t, err := f.Store.Trust(ctx, r.V.ID, name)
	return trustView(t.V), err
}

// UpdateTrust replaces what a trust says. Sessions that it has opened are over:
// their agents prove again who they are, to what it says now.
func (f *Fleet) UpdateTrust(ctx context.Context, by kernel.User, runner string, in NewTrust) (Trust, error) {
	if err := f.checkTrust(in); err != nil {
		return Trust{}, err
	}
	rev := f.IDs(prefixTrust)
	var out Trust
	err := f.Transact(ctx, "update trust "+in.Name+" of runner "+runner, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		t, err := f.Store.Trust(ctx, r.V.ID, in.Name)
		if err != nil {
			return err
		}
		if out = trustView(t.V); sameRule(t.V.Rule, in.Rule) {
			return nil // nothing changes, and nobody is turned away for it
		}
		t.V.Rule, t.V.Rev, t.V.Changed = in.Rule, rev, tx.Now
		tx.PutTrust(t)
		out = trustView(t.V)
		return nil
	})
	return out, err
}

func sameRule(a, b TrustRule) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// DeleteTrust removes a trust. The sessions that it has opened are over with it.
func (f *Fleet) DeleteTrust(ctx context.Context, by kernel.User, runner, name string) error {
	return f.Transact(ctx, "delete trust "+name+" of runner "+runner, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		if _, err := f.Store.Trust(ctx, r.V.ID, name); err != nil {
			return tx.Deleted(err)
		}
		tx.DropTrust(r.V.ID, name)
		r.V.Trusts = slices.DeleteFunc(slices.Clone(r.V.Trusts), func(n string) bool { return n == name })
		tx.PutRunner(r)
		return nil
	})
}

// EndSession ends an agent's session, and its token with it. An agent that can
// still prove who it is opens another: this is for a session token that got
// into other hands.
func (f *Fleet) EndSession(ctx context.Context, by kernel.User, runner string, id fairlead.SessionID) error {
	return f.Transact(ctx, "end session "+string(id), func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		s, err := f.Store.Session(ctx, r.V.ID, id)
		if err != nil || s.V.Ended {
			return err
		}
		s.V.Ended = true
		tx.PutSession(s)
		return nil
	})
}

// OIDCProof is an agent's proof of who it is by a token of its platform. The
// agent signs, with a key of its own, what it asks for and the token.
type OIDCProof struct {
	Token string
	// Binding is what the token's audience may hold to be good for this request
	// alone; "": this control plane does not know by which host it is reached.
	Binding string
}

// tokenProof is a token that was verified.
type tokenProof struct {
	oidc.Identity
	trust store.Trust
	key   string // key id of who has the token
}

// proveToken returns whose token the agent has, if the runner trusts it.
func (f *Fleet) proveToken(ctx context.Context, r store.Runner, p SessionProof) (tokenProof, error) {
	var out tokenProof
	if f.OIDC == nil || p.OIDC.Binding == "" {
		e := sessionRefused()
		e.Message = "this control plane verifies no OIDC tokens"
		return out, e
	}
	var err error
	if out.key, err = heldKey(p); err != nil {
		return out, err
	}
	trusts, err := f.Store.Trusts(ctx, r.ID)
	if err != nil {
		return out, err
	}
	if len(trusts) == 0 {
		return out, sessionRefused()
	}
	rules := make([]oidc.Trust, len(trusts))
	for i, t := range trusts {
		rules[i] = t.V.Rule
	}
	if out.Identity, err = f.OIDC.Verify(ctx, p.OIDC.Token, p.OIDC.Binding, rules); err != nil {
		return out, tokenRefused(err)
	}
	out.trust = trusts[out.Identity.Trust].V
	return out, nil
}

// admitToken decides in a commit: the trust must still be what it was when the
// token was judged by it, and the token nobody else's.
//
// A token is good for its first holder's key until it ends. Once and no more, as
// jti is meant, would lock out every agent that starts again before its platform
// writes the next token, which takes Kubernetes most of an hour; as often as
// one likes would let whoever reads the file be the runner. A token whose
// audience holds the request's binding was never good for anything else, and is
// not kept.
func admitToken(tx *kernel.Tx, p tokenProof) error {
	t, err := tx.Store.Trust(tx.Ctx, p.trust.Runner, p.trust.Name)
	if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && t.V.Rev != p.trust.Rev {
		return sessionRefused()
	}
	if err != nil {
		return err
	}
	tx.CheckTrust(t)
	if p.Bound {
		return nil
	}
	use, err := tx.Store.TokenUse(tx.Ctx, p.Use)
	switch {
	case fairlead.KindOf(err) == fairlead.KindNotFound:
		tx.PutTokenUse(p.Use, store.TokenUse{Key: p.key, Expires: p.Expires})
		return nil
	case err != nil:
		return err
	case use.V.Key != p.key:
		return tokenRefused(&fairlead.Error{Kind: fairlead.KindUnauthenticated, Message: "the OIDC token is not accepted: another agent has used it",
			Details: map[string]string{"reason": "replayed"}})
	}
	return nil // its holder's again
}

// tokenRefused says of a token what can be said to its holder.
func tokenRefused(err error) error {
	return proofRefused(err, "{trust.list} shows whose tokens the runner trusts.")
}

// stands returns nil if what has opened the session is what it was: the trust, or
// the enrolled key. An AWS role has a right of its own. It is read each time, so
// that removing a trust and revoking a key take effect at once, whatever sessions
// there are.
func stands(tx *kernel.Tx, s store.Session) error {
	if s.Enrolled {
		return enrolled(tx, s)
	}
	if s.Trust == "" {
		return nil
	}
	t, err := tx.Store.Trust(tx.Ctx, s.Runner, s.Trust)
	if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && t.V.Rev != s.TrustRev {
		return identity.NoLonger()
	}
	if err != nil {
		return fmt.Errorf("look at trust %s: %w", s.Trust, err)
	}
	return nil
}

// StandsStill returns nil if the session is still good: for a request that has waited
// since its session was read.
func StandsStill(tx *kernel.Tx, s Session) error {
	_, err := standing(tx, s.Runner, s.ID)
	return err
}

// standing returns a session that has not been ended, however it was opened.
func standing(tx *kernel.Tx, runner fairlead.RunnerID, id fairlead.SessionID) (store.Session, error) {
	r, err := store.Optional(tx.Store.Session(tx.Ctx, runner, id))
	switch {
	case err != nil:
		return store.Session{}, err
	case r.Version == 0 || r.V.Ended:
		return store.Session{}, identity.NoLonger()
	}
	return r.V, stands(tx, r.V)
}

// AuthenticateSession returns the session of a session token. It is read from
// the table each time, so ending it takes effect at once.
func (f *Fleet) AuthenticateSession(ctx context.Context, token string) (Session, error) {
	claims, err := f.Minter.Read(token, f.Now(), identity.Session)
	if err != nil {
		return Session{}, err
	}
	runner, session, _ := strings.Cut(claims.Subject, "/")
	s, err := standing(f.Reading(ctx), fairlead.RunnerID(runner), fairlead.SessionID(session))
	if err != nil {
		return Session{}, err
	}
	return sessionOf(f.Kernel, s), nil
}
