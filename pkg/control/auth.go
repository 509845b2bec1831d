package control

import (
	"context"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// AuthenticateUser returns the tenant of an API token.
func (c *Control) AuthenticateUser(ctx context.Context, token string) (fairlead.OrgID, error) {
	if !strings.HasPrefix(token, identity.PrefixAPI+"_") {
		return "", identity.Unauthenticated()
	}
	r, err := c.Store.Token(ctx, identity.Hash(token))
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return "", identity.Unauthenticated()
	}
	return r.V.Org, err
}

// AuthenticateSession returns the session of a session token. It is read from
// the table each time, so ending it takes effect at once.
func (c *Control) AuthenticateSession(ctx context.Context, token string) (store.Session, error) {
	claims, err := c.Minter.Read(token, c.Now(), identity.Session)
	if err != nil {
		return store.Session{}, err
	}
	runner, session, _ := strings.Cut(claims.Subject, "/")
	r, err := c.Store.Session(ctx, fairlead.RunnerID(runner), fairlead.SessionID(session))
	if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && r.V.Ended {
		return store.Session{}, identity.Unauthenticated()
	}
	return r.V, err
}

// AuthenticateJob returns the holder that a token of the given purpose names,
// if it is for the given job. Whether its lease is the current one is checked
// by each use case.
func (c *Control) AuthenticateJob(token string, purpose identity.Purpose, id fairlead.JobID) (Holder, error) {
	claims, err := c.Minter.Read(token, c.Now(), purpose)
	if err != nil {
		return Holder{}, err
	}
	if id != "" && claims.Subject != string(id) {
		return Holder{}, &fairlead.Error{Kind: fairlead.KindForbidden, Code: "other-job",
			Message: "the token is for another job"}
	}
	return Holder{Job: fairlead.JobID(claims.Subject), Epoch: claims.Epoch}, nil
}

// RegisterToken makes an API token known, by its hash, unless it is known
// already.
func (c *Control) RegisterToken(ctx context.Context, org fairlead.OrgID, name, token string) error {
	hash := identity.Hash(token)
	id := c.IDs(fairlead.PrefixToken)
	return c.transact(ctx, "register token "+name, func(u *unit) error {
		_, err := c.Store.Token(ctx, hash)
		if fairlead.KindOf(err) != fairlead.KindNotFound {
			return err
		}
		u.PutToken(hash, store.Stored[store.Token]{V: store.Token{ID: id, Org: org, Name: name, Created: u.now}})
		return nil
	})
}
