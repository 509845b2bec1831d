package store

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// User is a person of an org. It is stored under its email.
type User struct {
	fairlead.Actors
	ID       string           `json:"id"`
	Org      fairlead.OrgID   `json:"org"`
	Email    string           `json:"email"`              // in lower case
	Name     string           `json:"name,omitempty"`     // that the issuer reported at the last login
	Operator bool             `json:"operator,omitempty"` // the person operates the control plane
	Bindings []access.Binding `json:"bindings"`
	// Issuer and Subject identify the person at the issuer; "": the person has not logged in yet. The first login sets them,
	// and each later login must have the same.
	Issuer   string    `json:"issuer,omitempty"`
	Subject  string    `json:"subject,omitempty"`
	Invited  time.Time `json:"invited"`
	LoggedIn time.Time `json:"logged_in,omitzero"` // time of the last login; zero: never
	// Link is the hash of the login link that the person can use; "": none.
	Link string `json:"link,omitempty"`
}

// OfCustomer reports whether all roles of the user are at installs: it is a person of a customer.
func (u User) OfCustomer() bool {
	return len(u.Bindings) > 0 && !slices.ContainsFunc(u.Bindings, func(b access.Binding) bool { return b.Install == "" })
}

// LoginLink is a token of a person of a customer that is good for one login. It is stored under the hash of the token.
type LoginLink struct {
	Org     fairlead.OrgID `json:"org"`
	Email   string         `json:"email"`
	Of      string         `json:"of"` // identifier of the user
	Expires time.Time      `json:"expires"`
}

// Owns reports whether the user is an owner of the whole org, and has logged in.
func (u User) Owns() bool {
	return !u.LoggedIn.IsZero() && slices.Contains(u.Bindings, access.OwnerOf()[0])
}

// UserRef is the reference from an identity of a person to a user. A person can be a user of several orgs.
type UserRef struct {
	Org   fairlead.OrgID `json:"org"`
	Email string         `json:"email"`
}

// Login is what a person, or a service account, got for the proof of an identity: a token for some hours. It is stored under
// the hash of the token.
type Login struct {
	ID      string         `json:"id"`
	Org     fairlead.OrgID `json:"org"`
	Of      string         `json:"of"`   // identifier of the user, or of the service account
	Name    string         `json:"name"` // its key: the email, or the name of the service account
	Created time.Time      `json:"created"`
	Expires time.Time      `json:"expires"`
	// Rev and Subject are of a service account: its Rev at that time, and the subject of the platform's token.
	Rev     string `json:"rev,omitempty"`
	Subject string `json:"subject,omitempty"`
}

// LoginRef is the reference from a user to one of its logins.
type LoginRef struct {
	ID      string    `json:"id"`
	Hash    string    `json:"hash"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// LoginIssuer is an issuer of OIDC tokens at which people log in. The operator shares it with all orgs.
type LoginIssuer struct {
	fairlead.Actors
	Name string      `json:"name"`
	Rule oidc.Client `json:"rule"`
	Set  time.Time   `json:"set"`
}

// User returns an org's user by its email.
func (s *Store) User(ctx context.Context, org fairlead.OrgID, email string) (Stored[User], error) {
	return get[User](ctx, s, userKey(org, email), missing(fairlead.CodeUserNotFound, email))
}

// Users lists users by email.
func (s *Store) Users(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[User], error) {
	return query[User](ctx, s, engine.Query{Partition: usersPartition(org), After: q.After, Limit: q.Limit})
}

// AllUsers lists all users of an org; there are at most a few hundred.
func (s *Store) AllUsers(ctx context.Context, org fairlead.OrgID) ([]Stored[User], error) {
	return all[User](ctx, s, engine.Query{Partition: usersPartition(org)})
}

// PutUser writes a user.
func (t *Tx) PutUser(r Stored[User]) { put(t, userKey(r.V.Org, r.V.Email), r) }

// DeleteUser removes a user.
func (t *Tx) DeleteUser(r Stored[User]) { remove(t, userKey(r.V.Org, r.V.Email), r) }

// UserRefs returns the users of all orgs with an identity, which is the hash of an email, or of an issuer with a subject.
func (s *Store) UserRefs(ctx context.Context, identity string) ([]Stored[UserRef], error) {
	return all[UserRef](ctx, s, engine.Query{Partition: personPartition(identity)})
}

// PutUserRef writes the reference from an identity to a user.
func (t *Tx) PutUserRef(identity string, v UserRef) {
	put(t, personKey(identity, v.Org), Stored[UserRef]{V: v, Version: anyVersion})
}

// DropUserRef removes the reference from an identity to a user of the org, if there is one.
func (t *Tx) DropUserRef(identity string, org fairlead.OrgID) { t.drop(personKey(identity, org)) }

// Login returns a login by the hash of its token.
func (s *Store) Login(ctx context.Context, hash string) (Stored[Login], error) {
	return get[Login](ctx, s, loginKey(hash), missing(fairlead.CodeTokenNotFound, "given"))
}

// PutLogin writes a login and the reference to it. Both expire with the token.
func (t *Tx) PutLogin(hash string, v Login) {
	put(t, loginKey(hash), Stored[Login]{V: v}, expires(v.Expires))
	put(t, loginRefKey(v.Org, v.Of, v.ID), Stored[LoginRef]{V: LoginRef{ID: v.ID, Hash: hash, Created: v.Created, Expires: v.Expires}}, expires(v.Expires))
}

// DropLogin removes a login of a user, if it is there.
func (t *Tx) DropLogin(org fairlead.OrgID, of string, r LoginRef) {
	t.drop(loginKey(r.Hash))
	t.drop(loginRefKey(org, of, r.ID))
}

// Logins lists the logins of a user, the oldest first; there are at most a few. Some may have expired.
func (s *Store) Logins(ctx context.Context, org fairlead.OrgID, of string) ([]Stored[LoginRef], error) {
	return all[LoginRef](ctx, s, engine.Query{Partition: loginsPartition(org), Prefix: join(of, "")})
}

// LoginLink returns a login link by the hash of its token.
func (s *Store) LoginLink(ctx context.Context, hash string) (Stored[LoginLink], error) {
	return get[LoginLink](ctx, s, loginLinkKey(hash), missing(fairlead.CodeTokenNotFound, "given"))
}

// PutLoginLink writes a login link, which expires by itself.
func (t *Tx) PutLoginLink(hash string, v LoginLink) {
	put(t, loginLinkKey(hash), Stored[LoginLink]{V: v}, expires(v.Expires))
}

// DropLoginLink removes a login link, if it is there. The hash "" is none.
func (t *Tx) DropLoginLink(hash string) {
	if hash != "" {
		t.drop(loginLinkKey(hash))
	}
}

// LoginIssuer returns an issuer of logins by name.
func (s *Store) LoginIssuer(ctx context.Context, name string) (Stored[LoginIssuer], error) {
	return get[LoginIssuer](ctx, s, loginIssuerKey(name), missing(fairlead.CodeIssuerNotFound, name))
}

// LoginIssuers lists all issuers of logins by name; there are at most a few.
func (s *Store) LoginIssuers(ctx context.Context) ([]Stored[LoginIssuer], error) {
	return all[LoginIssuer](ctx, s, engine.Query{Partition: loginIssuersPartition()})
}

// PutLoginIssuer writes an issuer of logins.
func (t *Tx) PutLoginIssuer(r Stored[LoginIssuer]) { put(t, loginIssuerKey(r.V.Name), r) }

// DeleteLoginIssuer removes an issuer of logins.
func (t *Tx) DeleteLoginIssuer(r Stored[LoginIssuer]) { remove(t, loginIssuerKey(r.V.Name), r) }
