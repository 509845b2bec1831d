package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Token is an API token, by its hash. One that is revoked stays, so that what is
// left of it in a file is not taken for a new one.
type Token struct {
	ID       string         `json:"id"`
	Org      fairlead.OrgID `json:"org"`
	Name     string         `json:"name"`
	Operator bool           `json:"operator,omitempty"` // of whoever runs the control plane
	Created  time.Time      `json:"created"`
	Expires  time.Time      `json:"expires,omitzero"` // zero: never
	Used     time.Time      `json:"used,omitzero"`    // last, to within the hour; zero: never
	Revoked  time.Time      `json:"revoked,omitzero"` // zero: it is not
}

// Good reports whether the token is accepted at the given time.
func (t Token) Good(at time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || at.Before(t.Expires))
}

// Actor returns what records keep of the token's holder.
func (t Token) Actor() fairlead.Actor { return fairlead.Actor{Token: t.ID, Name: t.Name} }

// TokenRef finds a token by its name.
type TokenRef struct {
	ID   string `json:"id"`
	Hash string `json:"hash"`
}

// Token returns an API token by its hash.
func (s *Store) Token(ctx context.Context, hash string) (Stored[Token], error) {
	return get[Token](ctx, s, tokenKey(hash), missing(fairlead.CodeTokenNotFound, "given"))
}

// PutToken writes an API token.
func (t *Tx) PutToken(hash string, r Stored[Token]) { t.put(tokenKey(hash), r.Version, r.V) }

// TokenRef returns what finds the org's token of the name.
func (s *Store) TokenRef(ctx context.Context, org fairlead.OrgID, name string) (Stored[TokenRef], error) {
	return get[TokenRef](ctx, s, tokenRefKey(org, name), missing(fairlead.CodeTokenNotFound, name))
}

// TokenRefs lists what finds the org's tokens, by name.
func (s *Store) TokenRefs(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[TokenRef], error) {
	return query[TokenRef](ctx, s, engine.Query{Partition: tokensPartition(org), After: q.After, Limit: q.Limit})
}

// AllTokenRefs lists what finds the org's tokens; there are at most a few hundred.
func (s *Store) AllTokenRefs(ctx context.Context, org fairlead.OrgID) ([]Stored[TokenRef], error) {
	return all[TokenRef](ctx, s, engine.Query{Partition: tokensPartition(org)})
}

// PutTokenRef writes what finds the org's token of the name, on the condition that
// there is none.
func (t *Tx) PutTokenRef(org fairlead.OrgID, name string, v TokenRef) {
	t.put(tokenRefKey(org, name), 0, v)
}

// DeleteTokenRef removes what finds a token.
func (t *Tx) DeleteTokenRef(org fairlead.OrgID, name string, r Stored[TokenRef]) {
	t.delete(tokenRefKey(org, name), r.Version)
}
