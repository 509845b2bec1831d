package store

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Token is an API token, stored under its hash. A revoked token is kept, so that the
// control plane does not accept a copy of the token from a file as a new token.
type Token struct {
	fairlead.Actors
	ID       string         `json:"id"`
	Org      fairlead.OrgID `json:"org"`
	Name     string         `json:"name"`
	Operator bool           `json:"operator,omitempty"` // the token belongs to the operator of the control plane
	Created  time.Time      `json:"created"`
	Expires  time.Time      `json:"expires,omitzero"` // zero: never
	Used     time.Time      `json:"used,omitzero"`    // time of the last use, accurate to one hour; zero: never
	Revoked  time.Time      `json:"revoked,omitzero"` // zero: not revoked
	// First is true for the token of the first start, which is for the first login: it ends when an operator who owns the org logs in.
	First bool `json:"first,omitempty"`
	// Bindings are its roles; nil: an earlier release created it, when each token had all rights in its org.
	Bindings []access.Binding `json:"bindings,omitzero"`
}

// Roles returns the token's roles.
func (t Token) Roles() []access.Binding {
	if t.Bindings == nil {
		return access.OwnerOf()
	}
	return t.Bindings
}

// Owns reports whether the token is an owner of its whole org.
func (t Token) Owns() bool { return slices.Contains(t.Roles(), access.OwnerOf()[0]) }

// Good reports whether the token is accepted at the given time.
func (t Token) Good(at time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || at.Before(t.Expires))
}

// Actor returns the actor that records name for this token.
func (t Token) Actor() fairlead.Actor { return fairlead.Actor{Token: t.ID, Name: t.Name} }

// TokenRef is the reference from a token's name to its hash.
type TokenRef struct {
	ID   string `json:"id"`
	Hash string `json:"hash"`
}

// Token returns an API token by its hash.
func (s *Store) Token(ctx context.Context, hash string) (Stored[Token], error) {
	return get[Token](ctx, s, tokenKey(hash), missing(fairlead.CodeTokenNotFound, "given"))
}

// PutToken writes an API token.
func (t *Tx) PutToken(hash string, r Stored[Token]) { put(t, tokenKey(hash), r) }

// TokenRef returns the reference to the org's token with this name.
func (s *Store) TokenRef(ctx context.Context, org fairlead.OrgID, name string) (Stored[TokenRef], error) {
	return get[TokenRef](ctx, s, tokenRefKey(org, name), missing(fairlead.CodeTokenNotFound, name))
}

// TokenRefs lists the references to the org's tokens, by name.
func (s *Store) TokenRefs(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[TokenRef], error) {
	return query[TokenRef](ctx, s, engine.Query{Partition: tokensPartition(org), After: q.After, Limit: q.Limit})
}

// AllTokenRefs lists all references to the org's tokens; there are at most a few hundred.
func (s *Store) AllTokenRefs(ctx context.Context, org fairlead.OrgID) ([]Stored[TokenRef], error) {
	return all[TokenRef](ctx, s, engine.Query{Partition: tokensPartition(org)})
}

// PutTokenRef writes the reference to the org's token with this name. The commit fails if
// the name already has a reference.
func (t *Tx) PutTokenRef(org fairlead.OrgID, name string, v TokenRef) {
	put(t, tokenRefKey(org, name), Stored[TokenRef]{V: v})
}

// DeleteTokenRef removes the reference to a token.
func (t *Tx) DeleteTokenRef(org fairlead.OrgID, name string, r Stored[TokenRef]) {
	remove(t, tokenRefKey(org, name), r)
}
