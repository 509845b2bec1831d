package control

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// Org is a tenant of the control plane.
type Org struct {
	fairlead.Actors
	Name    fairlead.OrgID
	Created time.Time // zero: the org of the first start
	// First is the token of the first owner. Only the answer to the request that creates the org contains it.
	First Token
}

func orgOf(o store.Org) Org { return Org{Actors: o.Actors, Name: o.Name, Created: o.Created} }

// firstOwner is the name of the first token of an org that an operator makes.
const firstOwner = "first"

// CreateOrg makes an org with a token for the login of its first owner. Only an operator can. A repeated request with the same
// idempotency key computes the same token from the key.
func (c *Control) CreateOrg(ctx context.Context, by access.Principal, name, key string) (Org, error) {
	if !by.Operator {
		return Org{}, operatorOnly("only an operator creates an org")
	}
	if err := fairlead.CheckName("org", name); err != nil {
		return Org{}, err
	}
	org, id, random := fairlead.OrgID(name), c.IDs(fairlead.PrefixToken), identity.NewToken(identity.PrefixAPI)
	secretOf := func(id string) string {
		if key == "" {
			return random
		}
		return c.Minter.Token(identity.PrefixAPI, "create-org\n"+string(by.Org)+"\n"+key+"\n"+id)
	}
	var out Org
	err := c.Transact(ctx, "create org "+name, func(tx *kernel.Tx) error {
		o, err := store.Optional(c.Store.Org(ctx, org))
		if err != nil {
			return err
		}
		made, err := tx.Seen(kernel.Once{Org: by.Org, Route: "create-org", Key: key, Body: name}, id)
		if err != nil {
			return err
		}
		if made != "" {
			secret := secretOf(made)
			t, err := c.Store.Token(ctx, identity.Hash(secret))
			out = orgOf(o.V)
			out.First = tokenOf(t.V)
			out.First.Secret = secret
			return err
		}
		if out.First.ID == id && o.Version > 0 && o.V.Created.Equal(out.Created) {
			return nil // our own earlier commit, whose outcome was unclear
		}
		if o.Version > 0 || org == fairlead.DefaultOrg {
			e := fairlead.Conflict(fairlead.CodeOrgExists, "there is an org %q already", name)
			if !o.V.Deleted.IsZero() {
				e.Message = fmt.Sprintf("there was an org %q, and the name of a deleted org is not used again", name)
			}
			return e
		}
		t := store.Token{Actors: tx.Made(), ID: id, Org: org, Name: firstOwner, Bindings: access.OwnerOf(), Created: tx.Now, Expires: tx.Now.Add(FirstTokenLife), First: true}
		o.V = store.Org{Actors: tx.Made(), Name: org, Created: tx.Now}
		out = orgOf(o.V)
		out.First = tokenOf(t)
		out.First.Secret = secretOf(id)
		tx.PutOrg(o)
		tx.PutToken(identity.Hash(out.First.Secret), store.Stored[store.Token]{V: t})
		tx.PutTokenRef(org, t.Name, store.TokenRef{ID: id, Hash: identity.Hash(out.First.Secret)})
		return nil
	})
	if err != nil {
		return Org{}, err
	}
	c.Logger.Info("an org was created", "org", name, "by", by.Name)
	return out, nil
}

// Orgs lists all orgs, first that of the first start, then by name. A page can be shorter than asked.
func (c *Control) Orgs(ctx context.Context, by access.Principal, q fairlead.PageQuery) ([]Org, string, error) {
	if !by.Operator {
		return nil, "", operatorOnly("only an operator lists the orgs")
	}
	p, err := c.Store.Orgs(ctx, q)
	var out []Org
	if q.After == "" {
		out = append(out, Org{Name: fairlead.DefaultOrg})
	}
	for _, o := range p.Items {
		if o.V.Deleted.IsZero() {
			out = append(out, orgOf(o.V))
		}
	}
	return out, p.Next, err
}

// Org returns an org.
func (c *Control) Org(ctx context.Context, by access.Principal, name string) (Org, error) {
	if !by.Operator {
		return Org{}, operatorOnly("only an operator sees the orgs")
	}
	if fairlead.OrgID(name) == fairlead.DefaultOrg {
		return Org{Name: fairlead.DefaultOrg}, nil
	}
	o, err := c.Store.Org(ctx, fairlead.OrgID(name))
	if err == nil && !o.V.Deleted.IsZero() {
		err = fairlead.NotFound(fairlead.CodeOrgNotFound, name)
	}
	return orgOf(o.V), err
}

// DeleteOrg deletes an org that has no apps, installs, runners, groups, rules and webhooks. Its users, tokens and service accounts go with it. It
// is safe to repeat after an error.
func (c *Control) DeleteOrg(ctx context.Context, by access.Principal, name string) error {
	org := fairlead.OrgID(name)
	if _, err := c.Org(ctx, by, name); err != nil {
		return err
	}
	if org == fairlead.DefaultOrg {
		return fairlead.Conflict(fairlead.CodeOrgNotEmpty, "org %s is that of the first start, which stays", name)
	}
	left, err := c.leftIn(ctx, org)
	if err != nil {
		return err
	}
	if left != "" {
		e := fairlead.Conflict(fairlead.CodeOrgNotEmpty, "org %s has %s", name, left)
		e.Hint = "Delete what it has first."
		return e
	}
	if err := c.dropPeople(ctx, org); err != nil {
		return err
	}
	return c.Transact(ctx, "delete org "+name, func(tx *kernel.Tx) error {
		o, err := c.Store.Org(ctx, org)
		if err != nil || !o.V.Deleted.IsZero() {
			return err
		}
		o.V.Deleted = tx.Now
		tx.PutOrg(o)
		c.Logger.Info("an org was deleted", "org", name, "by", by.Name)
		return nil
	})
}

// leftIn returns the name of a kind of objects that an org has; "": it has none.
func (c *Control) leftIn(ctx context.Context, org fairlead.OrgID) (string, error) {
	one := fairlead.PageQuery{Limit: 1}
	apps, err1 := c.Store.Apps(ctx, org, one)
	installs, err2 := c.Store.Installs(ctx, org, one)
	fleet, err3 := c.Store.AllRunners(ctx, org)
	groups, err4 := c.Store.Groups(ctx, org, one)
	rules, err5 := c.Store.RunnerRules(ctx, org, one)
	hooks, err6 := c.Store.AllWebhooks(ctx, org)
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			return "", err
		}
	}
	for _, kind := range []struct {
		name string
		n    int
	}{{"installs", len(installs.Items)}, {"apps", len(apps.Items)}, {"runners", len(fleet)}, {"runner rules", len(rules.Items)}, {"groups", len(groups.Items)}, {"webhooks", len(hooks)}} {
		if kind.n > 0 {
			return kind.name, nil
		}
	}
	return "", nil
}

// dropPeople deletes the users and service accounts of an org and revokes its tokens, one a commit: together they can be more than a commit has room for.
func (c *Control) dropPeople(ctx context.Context, org fairlead.OrgID) error {
	users, err := c.Store.AllUsers(ctx, org)
	if err != nil {
		return err
	}
	for _, u := range users {
		err := c.Transact(ctx, "delete user "+u.V.Email, func(tx *kernel.Tx) error {
			now, err := c.Store.User(ctx, org, u.V.Email)
			if err != nil {
				return tx.Deleted(err)
			}
			return c.dropUser(tx, now)
		})
		if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
			return err
		}
	}
	refs, err := c.Store.AllTokenRefs(ctx, org)
	if err != nil {
		return err
	}
	for _, r := range refs {
		err := c.Transact(ctx, "revoke token "+r.V.ID, func(tx *kernel.Tx) error {
			t, err := c.Store.Token(ctx, r.V.Hash)
			if err != nil || !t.V.Revoked.IsZero() {
				return err
			}
			t.V.Revoked = tx.Now
			tx.PutToken(r.V.Hash, t)
			tx.DeleteTokenRef(org, t.V.Name, r)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return c.dropAccounts(ctx, org)
}

// dropAccounts deletes the service accounts of an org without runners and groups.
func (c *Control) dropAccounts(ctx context.Context, org fairlead.OrgID) error {
	accounts := func(q fairlead.PageQuery) (store.Page[store.ServiceAccount], error) {
		return c.Store.ServiceAccounts(ctx, org, q)
	}
	for a, err := range store.Pages(accounts) {
		if err != nil {
			return fmt.Errorf("list the service accounts: %w", err)
		}
		err := c.Transact(ctx, "delete service account "+a.V.Name, func(tx *kernel.Tx) error {
			now, err := store.Optional(c.Store.ServiceAccount(ctx, org, a.V.Name))
			if err == nil && now.Version > 0 {
				tx.DeleteServiceAccount(now)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
