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
	Operator bool // may change what is shared with every org
}

// AuthenticateUser returns whose an API token is.
func (c *Control) AuthenticateUser(ctx context.Context, token string) (User, error) {
	if !strings.HasPrefix(token, identity.PrefixAPI+"_") {
		return User{}, identity.Unauthenticated()
	}
	r, err := c.Store.Token(ctx, identity.Hash(token))
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return User{}, identity.Unauthenticated()
	}
	return User{Org: r.V.Org, Operator: r.V.Operator}, err
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

// RegisterToken makes an API token of a tenant known, by its hash, unless it is
// known already.
func (c *Control) RegisterToken(ctx context.Context, org fairlead.OrgID, name, token string) error {
	return c.registerToken(ctx, User{Org: org}, name, token)
}

// RegisterOperator makes the API token of whoever runs the control plane known:
// it is a token of the tenant org, and changes what is shared with all.
func (c *Control) RegisterOperator(ctx context.Context, org fairlead.OrgID, name, token string) error {
	return c.registerToken(ctx, User{Org: org, Operator: true}, name, token)
}

func (c *Control) registerToken(ctx context.Context, of User, name, token string) error {
	hash := identity.Hash(token)
	id := c.IDs(fairlead.PrefixToken)
	return c.transact(ctx, "register token "+name, func(u *unit) error {
		r, err := c.Store.Token(ctx, hash)
		switch {
		case err == nil && (r.V.Operator || !of.Operator):
			return nil
		case err == nil: // of a time without operators
			r.V.Operator = true
		case fairlead.KindOf(err) != fairlead.KindNotFound:
			return err
		default:
			r.V = store.Token{ID: id, Org: of.Org, Name: name, Operator: of.Operator, Created: u.now}
		}
		u.PutToken(hash, r)
		return nil
	})
}
