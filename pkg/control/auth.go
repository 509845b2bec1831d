package control

import (
	"context"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// User is who calls the control API.
type User struct {
	Org      fairlead.OrgID
	Operator bool           // may change what is shared with every org
	Token    fairlead.Actor // by which the user is known
}

// AuthenticateUser returns whose an API token is. It is read from the table each
// time, so a token that is revoked or has expired is refused at once.
func (c *Control) AuthenticateUser(ctx context.Context, token string) (User, error) {
	if !strings.HasPrefix(token, identity.PrefixAPI+"_") {
		return User{}, identity.Unauthenticated()
	}
	hash := identity.Hash(token)
	r, err := c.Store.Token(ctx, hash)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return User{}, identity.Unauthenticated()
	}
	if err == nil && !r.V.Good(c.now()) {
		return User{}, identity.NoLonger()
	}
	if err == nil && c.now().Sub(r.V.Used) >= tokenUsed {
		c.noteUse(ctx, hash)
	}
	return User{Org: r.V.Org, Operator: r.V.Operator, Token: r.V.Actor()}, err
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
		return store.Session{}, identity.NoLonger()
	}
	if err == nil {
		err = c.stands(ctx, r.V)
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
