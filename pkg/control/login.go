package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/store"
)

const (
	maxIssuers = 10
	// loginTime is how long a person has from the beginning of a login to its end, and how old an ID token may be.
	loginTime = 10 * time.Minute
)

// IssuerRule says how people log in at an issuer.
type IssuerRule = oidc.Client

// LoginIssuer is an issuer at which people log in.
type LoginIssuer struct {
	fairlead.Actors
	Name string
	Rule IssuerRule
	Set  time.Time
}

func issuerOf(i store.LoginIssuer) LoginIssuer {
	return LoginIssuer{Actors: i.Actors, Name: i.Name, Rule: i.Rule, Set: i.Set}
}

// SetLoginIssuer creates or replaces an issuer at which people log in. Only an operator can, because the issuer decides who a
// person is, in all orgs.
func (c *Control) SetLoginIssuer(ctx context.Context, by User, name string, rule IssuerRule) (LoginIssuer, error) {
	if !by.Operator {
		return LoginIssuer{}, operatorOnly("only an operator sets the issuers at which people log in")
	}
	if err := fairlead.CheckName("issuer", name); err != nil {
		return LoginIssuer{}, err
	}
	var rules oidc.Rules
	if c.OIDC != nil {
		rules = c.OIDC.Rules()
	}
	if err := rule.Check(rules); err != nil {
		return LoginIssuer{}, fairlead.Invalid(fairlead.CodeInvalidIssuer, "%v", err)
	}
	var out LoginIssuer
	err := c.Transact(ctx, "set issuer "+name, func(tx *kernel.Tx) error {
		all, err := c.Store.LoginIssuers(ctx)
		if err != nil {
			return err
		}
		r := store.Stored[store.LoginIssuer]{V: store.LoginIssuer{Actors: tx.Made(), Name: name}}
		for _, i := range all {
			if i.V.Name == name {
				r = i
			} else if i.V.Rule.Issuer == rule.Issuer {
				return fairlead.Invalid(fairlead.CodeInvalidIssuer, "the issuer %s has the URL %s already", i.V.Name, rule.Issuer)
			}
		}
		if r.Version == 0 && len(all) >= maxIssuers {
			return fairlead.Conflict(fairlead.CodeTooManyIssuers, "there are %d issuers, the largest number allowed", len(all))
		}
		if r.Version > 0 && sameClient(r.V.Rule, rule) {
			out = issuerOf(r.V)
			return nil
		}
		r.V.Rule, r.V.Set = rule, tx.Now
		tx.PutLoginIssuer(r)
		r.V.ChangedBy = tx.By
		out = issuerOf(r.V)
		return nil
	})
	return out, err
}

func sameClient(a, b IssuerRule) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// LoginIssuers lists the issuers at which people log in, by name.
func (c *Control) LoginIssuers(ctx context.Context) ([]LoginIssuer, error) {
	all, err := c.Store.LoginIssuers(ctx)
	out := make([]LoginIssuer, 0, len(all))
	for _, i := range all {
		out = append(out, issuerOf(i.V))
	}
	return out, err
}

// DeleteLoginIssuer deletes an issuer. Logins that were made there continue until they expire.
func (c *Control) DeleteLoginIssuer(ctx context.Context, by User, name string) error {
	if !by.Operator {
		return operatorOnly("only an operator deletes the issuers at which people log in")
	}
	return c.Transact(ctx, "delete issuer "+name, func(tx *kernel.Tx) error {
		i, err := c.Store.LoginIssuer(ctx, name)
		if err != nil {
			return tx.Deleted(err)
		}
		tx.DeleteLoginIssuer(i)
		return nil
	})
}

// LoginStart is what a program needs to let a person log in.
type LoginStart struct {
	Nonce   string // for the request for an ID token
	Expires time.Time
	Issuers []LoginIssuer
}

// BeginLogin begins a login. It stores nothing: the nonce is a token that expires.
func (c *Control) BeginLogin(ctx context.Context) (LoginStart, error) {
	issuers, err := c.LoginIssuers(ctx)
	out := LoginStart{Expires: c.Instant().Add(loginTime), Issuers: issuers}
	out.Nonce = c.Minter.Mint(identity.Claims{Purpose: identity.LoginNonce, Subject: strings.ToLower(rand.Text()), Expires: out.Expires})
	return out, err
}

// LoginProof is the proof that a person has logged in at an issuer.
type LoginProof struct {
	Issuer  string         // its name
	IDToken string         // of the issuer
	Nonce   string         // of BeginLogin, if the request for the token had one; "": the device flow has none
	Org     fairlead.OrgID // "": the only one that has invited the person
}

// LoggedIn is a login of a user. Token is the bearer token.
type LoggedIn struct {
	Token   string
	Expires time.Time
	Org     fairlead.OrgID
	User    Person
}

// LogIn gives a person who has logged in at an issuer a token for the org that has invited the person. The token permits what
// the user's roles permit at the time of a request. An ID token is accepted once, and only for minutes after it was issued. If
// it has a nonce, this must be one that BeginLogin made.
func (c *Control) LogIn(ctx context.Context, in LoginProof) (LoggedIn, error) {
	person, err := c.provePerson(ctx, in)
	if err != nil {
		return LoggedIn{}, err
	}
	ref, err := c.invitation(ctx, person, in.Org)
	if err != nil {
		return LoggedIn{}, err
	}
	token, id := identity.NewToken(identity.PrefixLogin), c.IDs(fairlead.PrefixLogin)
	out := LoggedIn{Token: token, Org: ref.Org}
	err = c.Transact(ctx, "log in "+ref.Email, func(tx *kernel.Tx) error {
		use, err := store.Optional(c.Store.TokenUse(ctx, person.Use))
		if err != nil || use.V.Key == id {
			return err // "" and nil: our own earlier commit, whose outcome was unclear
		}
		if use.Version > 0 {
			return loginRefused("replayed", "the ID token was used before")
		}
		u, err := c.Store.User(ctx, ref.Org, ref.Email)
		if err != nil {
			return notInvited(person, err)
		}
		if u.V.Subject != "" && (u.V.Issuer != person.Issuer || u.V.Subject != person.Subject) {
			return loginRefused("other-subject", "user %s has logged in as another person of an issuer before; an owner of the org can delete the user and invite it again", u.V.Email)
		}
		if u.V.LoggedIn.IsZero() && slices.Contains(u.V.Bindings, access.OwnerOf()[0]) {
			if err := c.endFirst(tx, u.V); err != nil {
				return err
			}
		}
		u.V.Issuer, u.V.Subject, u.V.Name, u.V.LoggedIn = person.Issuer, person.Subject, cmp.Or(person.Name, u.V.Name), tx.Now
		logins, err := c.Store.Logins(ctx, ref.Org, u.V.ID)
		if err != nil {
			return err
		}
		for _, old := range logins[:max(0, len(logins)-maxLogins+1)] {
			tx.DropLogin(ref.Org, u.V.ID, old.V)
		}
		out.Expires = tx.Now.Add(LoginLife)
		tx.PutUser(u)
		tx.PutUserRef(bySubject(person.Issuer, person.Subject), ref)
		tx.PutLogin(identity.Hash(token), store.Login{ID: id, Org: ref.Org, Of: u.V.ID, Name: u.V.Email, Created: tx.Now, Expires: out.Expires})
		tx.PutTokenUse(person.Use, store.TokenUse{Key: id, Expires: person.Expires})
		out.User = userOf(u.V)
		return nil
	})
	if err != nil {
		return LoggedIn{}, err
	}
	c.Logger.Info("a user logged in", "user", out.User.ID, "email", out.User.Email, "login", id)
	return out, nil
}

// provePerson verifies an ID token.
func (c *Control) provePerson(ctx context.Context, in LoginProof) (oidc.Person, error) {
	issuer, err := c.Store.LoginIssuer(ctx, in.Issuer)
	if err != nil {
		return oidc.Person{}, err
	}
	if c.OIDC == nil {
		return oidc.Person{}, loginRefused("issuer", "this control plane verifies no OIDC tokens")
	}
	p, err := c.OIDC.VerifyPerson(ctx, in.IDToken, issuer.V.Rule)
	if refusal, ok := errors.AsType[*fairlead.Error](err); ok && refusal.Kind == fairlead.KindUnauthenticated {
		return p, loginRefused(refusal.Details["reason"], "%s", refusal.Message)
	}
	if err != nil {
		return p, err
	}
	switch {
	case p.Nonce != in.Nonce:
		return p, loginRefused("nonce", "the ID token is not for this login")
	case in.Nonce != "":
		if _, err := c.Minter.Read(in.Nonce, c.Now(), identity.LoginNonce); err != nil {
			return p, loginRefused("nonce", "the login took longer than %s", loginTime)
		}
	case c.Now().Sub(p.Issued) > loginTime:
		return p, loginRefused("expired", "the ID token was issued more than %s ago", loginTime)
	}
	return p, nil
}

func loginRefused(reason, format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeLoginRefused, Message: fmt.Sprintf(format, args...), Hint: "Log in again: {session.login}.",
		Details: map[string]string{"reason": reason}}
}

// notInvited returns the refusal of a person whom no org, or not the given one, has invited. A failed lookup is err.
func notInvited(p oidc.Person, err error) error {
	if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
		return err
	}
	e := &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeNotInvited, Message: p.Email + " was not invited to an org of this control plane",
		Hint: "Ask an owner of the org to invite this email: {user.invite}."}
	if p.Email == "" {
		e.Message = "the issuer reports no email that it has verified, and the person has not logged in before"
		e.Hint = "Verify the email at the issuer. If the issuer verifies all emails and does not report it, an operator sets this: {issuer.set}."
	}
	return e
}

// invitation returns the user that the person is. A person who has logged in before is known by the subject, and one who has
// not by the email.
func (c *Control) invitation(ctx context.Context, p oidc.Person, org fairlead.OrgID) (store.UserRef, error) {
	refs, err := c.Store.UserRefs(ctx, bySubject(p.Issuer, p.Subject))
	if err != nil {
		return store.UserRef{}, err
	}
	if p.Email != "" {
		invited, err := c.Store.UserRefs(ctx, byEmail(p.Email))
		if err != nil {
			return store.UserRef{}, err
		}
		for _, r := range invited {
			if !slices.ContainsFunc(refs, func(known store.Stored[store.UserRef]) bool { return known.V.Org == r.V.Org }) {
				refs = append(refs, r)
			}
		}
	}
	var orgs []string
	for _, r := range refs {
		if r.V.Org == org || org == "" && len(refs) == 1 {
			return r.V, nil
		}
		orgs = append(orgs, string(r.V.Org))
	}
	if org == "" && len(refs) > 1 {
		slices.Sort(orgs)
		return store.UserRef{}, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeOrgAmbiguous, Message: "several orgs have invited " + cmp.Or(p.Email, "the person") + ": " + strings.Join(orgs, ", "),
			Hint: "Name one of them.", Details: map[string]string{"orgs": strings.Join(orgs, ",")}}
	}
	return store.UserRef{}, notInvited(p, nil)
}

// EndLogin ends the login whose token it is.
func (c *Control) EndLogin(ctx context.Context, token string) error {
	hash := identity.Hash(token)
	return c.Transact(ctx, "log out", func(tx *kernel.Tx) error {
		l, err := c.Store.Login(ctx, hash)
		if fairlead.KindOf(err) == fairlead.KindNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		tx.DropLogin(l.V.Org, l.V.Of, store.LoginRef{ID: l.V.ID, Hash: hash})
		return nil
	})
}

// authenticateLogin returns the principal of the token of a login. The user's roles are read each time, so that a change of them,
// and the deletion of the user, take effect at once.
func (c *Control) authenticateLogin(ctx context.Context, token string) (access.Principal, error) {
	l, err := c.Store.Login(ctx, identity.Hash(token))
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return access.Principal{}, identity.Unauthenticated()
	}
	if err != nil {
		return access.Principal{}, err
	}
	u, err := c.Store.User(ctx, l.V.Org, l.V.Name)
	if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && u.V.ID != l.V.Of || !c.Instant().Before(l.V.Expires) {
		return access.Principal{}, identity.NoLonger()
	}
	if err != nil {
		return access.Principal{}, err
	}
	return access.Principal{Kind: access.User, ID: u.V.ID, Name: u.V.Email, Org: u.V.Org, Operator: u.V.Operator, Bindings: u.V.Bindings, Expires: l.V.Expires}, nil
}
