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

// Trust is a runner's rule for the OIDC tokens that can open its sessions.
type Trust struct {
	fairlead.Actors
	Name             string
	Rule             TrustRule
	Created, Changed time.Time
}

func trustView(t store.Trust) Trust {
	return Trust{Actors: t.Actors, Name: t.Name, Rule: t.Rule, Created: t.Created, Changed: t.Changed}
}

// TrustRule is the content of a trust.
type TrustRule = oidc.Trust

// NewTrust is a request to create or update a trust.
type NewTrust struct {
	Name string    `json:"name"`
	Rule TrustRule `json:"rule"`
}

// prefixTrust begins the revision ids of trusts.
const prefixTrust = "tru"

// checkTrust returns an error if the trust is not valid on this control plane.
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

// CreateTrust makes a runner trust OIDC tokens of an issuer that have certain claims. A
// holder of such a token can then open sessions of the runner.
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
			return nil // a repeated request, or our own earlier commit, whose outcome was unclear
		case found == nil:
			return fairlead.Conflict(fairlead.CodeTrustExists, "runner %s has a trust %q already", runner, in.Name)
		case fairlead.KindOf(found) != fairlead.KindNotFound:
			return found
		case again != "": // this request created the trust, which was deleted afterwards
			return found
		case r.V.Leaving:
			return Leaving(r.V)
		case len(r.V.Trusts) >= oidc.MaxTrusts:
			return fairlead.Conflict(fairlead.CodeTooManyTrusts, "runner %s has %d trusts, the largest number allowed", runner, len(r.V.Trusts))
		}
		t := store.Trust{Actors: tx.Made(), Runner: r.V.ID, Name: in.Name, Rev: rev, Rule: in.Rule, Created: tx.Now, Changed: tx.Now}
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

// UpdateTrust replaces the rule of a trust. It ends the sessions that the trust opened:
// their agents must authenticate against the new rule.
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
			return nil // the rule is the same, so the sessions of the trust stay open
		}
		t.V.Rule, t.V.Rev, t.V.Changed, t.V.ChangedBy = in.Rule, rev, tx.Now, tx.By
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

// DeleteTrust deletes a trust and ends the sessions that it opened.
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

// EndSession ends an agent's session and invalidates its token. Use it if a
// session token leaked. The agent itself opens a new session, if it can still
// authenticate.
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

// OIDCProof authenticates an agent by an OIDC token of its platform. The agent signs
// the request and the token with a key of its own.
type OIDCProof struct {
	Token string
	// Binding is the audience that makes a token valid for this request only. It is
	// empty if this control plane does not know the host under which agents reach it.
	Binding string
}

// tokenProof is a verified token.
type tokenProof struct {
	oidc.Identity
	trust store.Trust
	key   string // key id of the token's holder
}

// proveToken verifies the agent's token and returns the identity in the token. It returns
// an error if the token is not valid, or if the runner does not trust the identity.
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

// admitToken checks in the commit that the trust has not changed since the token was
// verified, and that no other key has used the token.
//
// Until a token expires, it is valid only for the key of its first holder. If a token
// were accepted only once, which is the purpose of its claim jti, an agent that restarts
// could open no session until its platform writes the next token. Kubernetes takes most
// of an hour to write it. If a token were accepted for any key, a person who can read the
// token file could act as the runner. A token whose audience is OIDCProof.Binding is valid
// for this request only, so its use is not recorded.
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
	return nil // the same holder uses the token again
}

// tokenRefused returns the refusal of a session for an error about its OIDC token. The
// message contains only facts that the token's holder may know.
func tokenRefused(err error) error {
	return proofRefused(err, "{trust.list} shows whose tokens the runner trusts.")
}

// stands returns an error if the trust or key that opened the session is no longer valid:
// the trust was changed or deleted, or the key was revoked. For a session of an AWS role
// it always returns nil.
// The trust or key is read for each request, so that deleting a trust or revoking a key
// takes effect at once.
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
		return fmt.Errorf("read trust %s: %w", s.Trust, err)
	}
	return nil
}

// StandsStill returns an error if the session is no longer valid. A request that has
// waited calls StandsStill before it continues.
func StandsStill(tx *kernel.Tx, s Session) error {
	_, err := standing(tx, s.Runner, s.ID)
	return err
}

// standing returns the session, or an error if it has ended or its trust or key is no
// longer valid.
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

// AuthenticateSession returns the session of a session token. It reads the session from
// the table each time, so that ending the session takes effect at once.
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
