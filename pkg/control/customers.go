package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// People of a customer are users whose roles are at installs. The vendor invites the first one with the role security, who decides
// from then on who approves the install's plans.

const (
	// LinkLife is how long a login link is valid.
	LinkLife = 7 * 24 * time.Hour
	// LinkLoginLife is how long the login of a link is valid. It is longer than that of an issuer: most customers have no account
	// at the vendor's issuer, and each new link is work for another person.
	LinkLoginLife = 30 * 24 * time.Hour
)

// visibleInstall returns the identifier of an install that the caller sees.
func (c *Control) visibleInstall(ctx context.Context, by access.Principal, name string) (fairlead.InstallID, error) {
	r, err := c.Store.Install(ctx, by.Org, name)
	if err == nil && !by.May(access.View, objectOf(by.Org, r.V)) {
		err = fairlead.NotFound(fairlead.CodeInstallNotFound, name)
	}
	return r.V.ID, err
}

// mayBeFirst reports whether the caller may give the role if no other person has it: the vendor invites the first person who decides
// for the customer.
func mayBeFirst(by access.Principal, b access.Binding) bool {
	return b.Role == access.Security && b.Install != "" && by.MayEverywhere(access.ManagePeople)
}

// securityDecides returns an error if the caller gives a role at an install that has people of the customer who give it.
func securityDecides(by access.Principal, all []store.Stored[store.User], bindings []access.Binding) error {
	for _, b := range bindings {
		if b.Install == "" || by.MayGrant(b) {
			continue
		}
		for _, u := range all {
			if has(u.V, access.Security, b.Install) {
				return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeRoleMissing, Message: fmt.Sprintf("%s decides who approves install %s", u.V.Email, b.InstallName),
					Hint: "Ask this person of the customer to invite others."}
			}
		}
	}
	return nil
}

func has(u store.User, r access.Role, at fairlead.InstallID) bool {
	return slices.ContainsFunc(u.Bindings, func(b access.Binding) bool { return b.Role == r && b.Install == at })
}

// markApprovers records at each install of which a user is or was an approver whether the customer approves it. all are the users
// before the change.
func (c *Control) markApprovers(tx *kernel.Tx, org fairlead.OrgID, all []store.Stored[store.User], before, after store.User) error {
	done := map[fairlead.InstallID]bool{}
	for _, b := range slices.Concat(before.Bindings, after.Bindings) {
		if b.Role != access.Approver || b.Install == "" || done[b.Install] {
			continue
		}
		done[b.Install] = true
		r, err := store.Optional(c.Store.Install(tx.Ctx, org, b.InstallName))
		if err != nil {
			return err
		}
		if r.V.ID != b.Install {
			continue // the install was forgotten
		}
		r.V.CustomerApproves = has(after, access.Approver, b.Install) || slices.ContainsFunc(all, func(u store.Stored[store.User]) bool {
			return u.V.ID != before.ID && u.V.ID != after.ID && has(u.V, access.Approver, b.Install)
		})
		tx.PutInstall(r) // also unchanged: two approvers who are removed at the same time would both see the other
	}
	return nil
}

// removable returns a user whom the caller may delete. If the customer's people have lost their logins, only an operator helps.
func (c *Control) removable(tx *kernel.Tx, by access.Principal, which string) (store.Stored[store.User], error) {
	u, err := c.changeable(tx, by, which, false)
	if fairlead.KindOf(err) == fairlead.KindForbidden && by.Operator && u.V.OfCustomer() {
		return u, nil
	}
	return u, err
}

// LoginLink is a token with which a person of a customer logs in, once.
type LoginLink struct {
	Token   string
	Expires time.Time
}

// CreateLoginLink makes a login link for a person of a customer, who need not be known to an issuer. It replaces an earlier one. The
// vendor makes the link of the first person only until that person has logged in.
func (c *Control) CreateLoginLink(ctx context.Context, by access.Principal, which string) (LoginLink, error) {
	out := LoginLink{Token: identity.NewToken(identity.PrefixLink)}
	err := c.Transact(ctx, "make a login link for user "+which, func(tx *kernel.Tx) error {
		u, err := c.changeable(tx, by, which, false)
		if fairlead.KindOf(err) == fairlead.KindForbidden && u.V.LoggedIn.IsZero() && u.V.OfCustomer() && by.MayEverywhere(access.ManagePeople) {
			all, failed := c.Store.AllUsers(ctx, by.Org)
			if failed != nil {
				return failed
			}
			err = securityDecides(by, slices.DeleteFunc(all, func(other store.Stored[store.User]) bool { return other.V.ID == u.V.ID }), u.V.Bindings)
		}
		if err != nil {
			return err
		}
		if !u.V.OfCustomer() {
			return fairlead.Invalid(fairlead.CodeInvalidRole, "user %s has a role outside of installs, so it logs in at the issuer only", u.V.Email)
		}
		hash := identity.Hash(out.Token)
		if u.V.Link == hash {
			return nil // our own earlier commit, whose outcome was unclear
		}
		out.Expires = tx.Now.Add(LinkLife)
		tx.DropLoginLink(u.V.Link)
		tx.PutLoginLink(hash, store.LoginLink{Org: u.V.Org, Email: u.V.Email, Of: u.V.ID, Expires: out.Expires})
		u.V.Link = hash
		tx.PutUser(u)
		return nil
	})
	return out, err
}

// LogInByLink trades a login link for a login. A link is good for one login.
func (c *Control) LogInByLink(ctx context.Context, link string) (LoggedIn, error) {
	token, id := identity.NewToken(identity.PrefixLogin), c.IDs(fairlead.PrefixLogin)
	out := LoggedIn{Token: token}
	hash := identity.Hash(link)
	err := c.Transact(ctx, "log in by a link", func(tx *kernel.Tx) error {
		done, err := store.Optional(c.Store.Login(ctx, identity.Hash(token)))
		if err != nil || done.Version > 0 {
			return err // nil: our own earlier commit, whose outcome was unclear
		}
		l, err := store.Optional(c.Store.LoginLink(ctx, hash))
		if err != nil {
			return err
		}
		u, err := store.Optional(c.Store.User(ctx, l.V.Org, l.V.Email))
		if err != nil {
			return err
		}
		if l.Version == 0 || !tx.Now.Before(l.V.Expires) || u.V.ID != l.V.Of || u.V.Link != hash {
			return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeLoginRefused, Message: "the login link was used, has expired, or was replaced",
				Hint: "Ask the person who invited you for another link. If you have not used it, tell this person.", Details: map[string]string{"reason": "link"}}
		}
		logins, err := c.Store.Logins(ctx, u.V.Org, u.V.ID)
		if err != nil {
			return err
		}
		for _, old := range logins[:max(0, len(logins)-maxLogins+1)] {
			tx.DropLogin(u.V.Org, u.V.ID, old.V)
		}
		u.V.Link, u.V.LoggedIn = "", tx.Now
		out.Org, out.Expires = u.V.Org, tx.Now.Add(LinkLoginLife)
		tx.DropLoginLink(hash)
		tx.PutUser(u)
		tx.PutLogin(identity.Hash(token), store.Login{ID: id, Org: u.V.Org, Of: u.V.ID, Name: u.V.Email, Created: tx.Now, Expires: out.Expires})
		out.User = userOf(u.V)
		return nil
	})
	if err != nil {
		return LoggedIn{}, err
	}
	c.Logger.Info("a user logged in by a link", "user", out.User.ID, "email", out.User.Email, "login", id)
	return out, nil
}
