package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/store"
)

// The limits of people.
const (
	MaxUsers  = 500 // of an org
	maxLogins = 20  // of a user at the same time; one more ends the oldest
	// LoginLife is how long the token of a login is valid.
	LoginLife = 12 * time.Hour
)

// EmailPattern describes the emails of users. It leaves out "#" and "/", which separate the parts of keys and paths.
const EmailPattern = `^[A-Za-z0-9.!$%&'*+=?^_{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}$`

var emailPattern = pattern.New(EmailPattern)

// NewUser is a request to invite a person.
type NewUser struct {
	Email    string           `json:"email"`
	Operator bool             `json:"operator,omitempty"`
	Bindings []access.Binding `json:"bindings"`
}

// UserChange replaces the roles of a user; a nil field stays.
type UserChange struct {
	Bindings []access.Binding
	Operator *bool
}

// Person is a user: a person who may log in to an org.
type Person struct {
	fairlead.Actors
	ID       string
	Email    string
	Name     string // that the issuer reported; "": the person has not logged in
	Operator bool
	Bindings []access.Binding
	Issuer   string // at which the person logs in; "": the person has not logged in
	Invited  time.Time
	LoggedIn time.Time // time of the last login; zero: never
	Logins   []UserLogin
}

// UserLogin is a login that is not over.
type UserLogin struct {
	ID               string
	Created, Expires time.Time
}

func userOf(u store.User) Person {
	return Person{Actors: u.Actors, ID: u.ID, Email: u.Email, Name: u.Name, Operator: u.Operator, Bindings: u.Bindings, Issuer: u.Issuer, Invited: u.Invited, LoggedIn: u.LoggedIn}
}

// byEmail and bySubject return the identities under which a person is found.
func byEmail(email string) string { return identity.Hash("email\n" + email) }
func bySubject(issuer, subject string) string {
	return identity.Hash("subject\n" + issuer + "\n" + subject)
}

// InviteUser makes a person a user of the caller's org. The person is known by the email until the first login, and afterwards
// by the issuer and its subject. No caller gives a role that it does not have itself at the same place.
func (c *Control) InviteUser(ctx context.Context, by access.Principal, in NewUser, key string) (Person, error) {
	in.Email = strings.ToLower(in.Email)
	if !emailPattern.MatchString(in.Email) {
		return Person{}, fairlead.Invalid(fairlead.CodeInvalidEmail, "%q is no email that a user can have", fairlead.Clip(in.Email, 80))
	}
	if in.Operator && !by.Operator {
		return Person{}, operatorOnly("only an operator invites an operator")
	}
	var err error
	if in.Bindings, err = c.grantable(ctx, by, in.Bindings, "invite a user with"); err != nil {
		return Person{}, err
	}
	id := c.IDs(fairlead.PrefixUser)
	var out Person
	err = c.Transact(ctx, "invite user "+in.Email, func(tx *kernel.Tx) error {
		all, err := c.Store.AllUsers(ctx, by.Org)
		if err != nil {
			return err
		}
		made, err := tx.Seen(kernel.Once{Org: by.Org, Route: "invite-user", Key: key, Body: in}, id)
		if err != nil {
			return err
		}
		for _, u := range all {
			if u.V.Email != in.Email {
				continue
			}
			if out = userOf(u.V); u.V.ID == id || u.V.ID == made {
				return nil // a repeated request, or our own earlier commit, whose outcome was unclear
			}
			e := fairlead.Conflict(fairlead.CodeUserExists, "there is a user %s already", in.Email)
			e.Hint = "Change its roles with {user.update}."
			return e
		}
		if made != "" { // this request invited the user, who was deleted afterwards
			return fairlead.NotFound(fairlead.CodeUserNotFound, in.Email)
		}
		if len(all) >= MaxUsers {
			return fairlead.Conflict(fairlead.CodeTooManyUsers, "there are %d users, the largest number allowed", len(all))
		}
		if err := securityDecides(by, all, in.Bindings); err != nil {
			return err
		}
		u := store.User{Actors: tx.Made(), ID: id, Org: by.Org, Email: in.Email, Operator: in.Operator, Bindings: in.Bindings, Invited: tx.Now}
		out = userOf(u)
		tx.PutUser(store.Stored[store.User]{V: u})
		tx.PutUserRef(byEmail(u.Email), store.UserRef{Org: u.Org, Email: u.Email})
		return c.markApprovers(tx, by.Org, all, store.User{}, u)
	})
	if err != nil {
		return Person{}, err
	}
	c.Logger.Info("a user was invited", "user", out.ID, "email", out.Email, "roles", access.Describe(out.Bindings), "by", by.Name)
	return out, nil
}

// Users lists users by email.
func (c *Control) Users(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]Person, string, error) {
	p, err := c.Store.Users(ctx, org, q)
	return kernel.List(p, err, userOf)
}

// SeesUser reports whether the caller may see the user: it may give all roles of the user, or it is the user. An owner of the whole
// org also sees the customer's people.
func SeesUser(by access.Principal, u Person) bool {
	return by.ID == u.ID || len(u.Bindings) > 0 && !slices.ContainsFunc(u.Bindings, func(b access.Binding) bool {
		return !by.MayGrant(b) && (b.Install == "" || !by.MayEverywhere(access.ManagePeople))
	})
}

// findUser returns a user of the caller's org by its email or identifier. A user whom the caller may not see is not found.
func (c *Control) findUser(ctx context.Context, by access.Principal, which string) (store.Stored[store.User], error) {
	missing := fairlead.NotFound(fairlead.CodeUserNotFound, which)
	if strings.HasPrefix(which, fairlead.PrefixUser+"_") {
		all, err := c.Store.AllUsers(ctx, by.Org)
		if err != nil {
			return store.Stored[store.User]{}, err
		}
		for _, u := range all {
			if u.V.ID == which && SeesUser(by, userOf(u.V)) {
				return u, nil
			}
		}
		return store.Stored[store.User]{}, missing
	}
	u, err := c.Store.User(ctx, by.Org, strings.ToLower(which))
	if err == nil && !SeesUser(by, userOf(u.V)) || fairlead.KindOf(err) == fairlead.KindNotFound {
		return store.Stored[store.User]{}, missing
	}
	return u, err
}

// User returns a user with its logins, by the email or identifier.
func (c *Control) User(ctx context.Context, by access.Principal, which string) (Person, error) {
	u, err := c.findUser(ctx, by, which)
	if err != nil {
		return Person{}, err
	}
	out := userOf(u.V)
	logins, err := c.Store.Logins(ctx, by.Org, u.V.ID)
	for _, l := range logins {
		if c.Instant().Before(l.V.Expires) {
			out.Logins = append(out.Logins, UserLogin{ID: l.V.ID, Created: l.V.Created, Expires: l.V.Expires})
		}
	}
	return out, err
}

// UpdateUser changes the roles of a user, from its next request on. The caller must be able to give the old and the new roles.
func (c *Control) UpdateUser(ctx context.Context, by access.Principal, which string, change UserChange) (Person, error) {
	var bindings []access.Binding
	if _, err := c.changeable(c.Reading(ctx), by, which, change.Operator != nil); err != nil { // first: what follows reveals groups
		return Person{}, err
	}
	if change.Bindings != nil {
		var err error
		if bindings, err = c.grantable(ctx, by, change.Bindings, "give a user"); err != nil {
			return Person{}, err
		}
	}
	var out Person
	err := c.Transact(ctx, "update user "+which, func(tx *kernel.Tx) error {
		u, err := c.changeable(tx, by, which, change.Operator != nil)
		if err != nil {
			return err
		}
		before := u.V
		if bindings != nil {
			u.V.Bindings = bindings
		}
		if change.Operator != nil {
			u.V.Operator = *change.Operator
		}
		if err := c.keepsOwner(tx, before, u.V); err != nil {
			return err
		}
		all, err := c.Store.AllUsers(ctx, by.Org)
		if err != nil {
			return err
		}
		if err := securityDecides(by, all, u.V.Bindings); err != nil {
			return err
		}
		tx.PutUser(u)
		after := u.V
		u.V.ChangedBy = tx.By
		out = userOf(u.V)
		return c.markApprovers(tx, by.Org, all, before, after)
	})
	return out, err
}

// changeable returns a user whom the caller may change. Only an operator changes an operator, and who is one.
func (c *Control) changeable(tx *kernel.Tx, by access.Principal, which string, operator bool) (store.Stored[store.User], error) {
	u, err := c.findUser(tx.Ctx, by, which)
	if err != nil {
		return u, err
	}
	self := by.ID == u.V.ID && slices.ContainsFunc(u.V.Bindings, func(b access.Binding) bool { return b.Install != "" }) // security must not make itself an approver
	if self || slices.ContainsFunc(u.V.Bindings, func(b access.Binding) bool { return !by.MayGrant(b) }) {               // sees itself, and may not change itself
		return u, &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeRoleMissing, Message: fmt.Sprintf("%s %s may not change user %s", by.Kind, by.Name, u.V.Email),
			Hint: "Only an owner at each place of the user's roles changes them."}
	}
	if (u.V.Operator || operator) && !by.Operator {
		return u, operatorOnly("only an operator changes who is an operator, and what an operator may do")
	}
	return u, nil
}

// DeleteUser deletes a user. Its logins are over at once.
func (c *Control) DeleteUser(ctx context.Context, by access.Principal, which string) error {
	return c.Transact(ctx, "delete user "+which, func(tx *kernel.Tx) error {
		u, err := c.removable(tx, by, which)
		if err != nil {
			return tx.Deleted(err)
		}
		if err := c.keepsOwner(tx, u.V, store.User{}); err != nil {
			return err
		}
		if err := c.dropUser(tx, u); err != nil {
			return err
		}
		all, err := c.Store.AllUsers(ctx, by.Org)
		if err != nil {
			return err
		}
		return c.markApprovers(tx, by.Org, all, u.V, store.User{})
	})
}

// dropUser removes a user with its logins.
func (c *Control) dropUser(tx *kernel.Tx, u store.Stored[store.User]) error {
	if err := c.dropLogins(tx, u.V); err != nil {
		return err
	}
	tx.DropUserRef(byEmail(u.V.Email), u.V.Org)
	if u.V.Subject != "" {
		tx.DropUserRef(bySubject(u.V.Issuer, u.V.Subject), u.V.Org)
	}
	tx.DropLoginLink(u.V.Link)
	tx.DeleteUser(u)
	return nil
}

// EndLogins ends all logins of a user. A user may end its own.
func (c *Control) EndLogins(ctx context.Context, by access.Principal, which string) error {
	return c.Transact(ctx, "end the logins of user "+which, func(tx *kernel.Tx) error {
		u, err := c.findUser(ctx, by, which)
		if err != nil {
			return err
		}
		return c.dropLogins(tx, u.V)
	})
}

func (c *Control) dropLogins(tx *kernel.Tx, u store.User) error {
	logins, err := c.Store.Logins(tx.Ctx, u.Org, u.ID)
	for _, l := range logins {
		tx.DropLogin(u.Org, u.ID, l.V)
	}
	return err
}

// keepsOwner returns an error if a change of a user takes the last owner from the org, or the last operator: only a person with
// access to the control plane's machine or account could then create another.
func (c *Control) keepsOwner(tx *kernel.Tx, before, after store.User) error {
	loses, losesOperator := before.Owns() && !after.Owns(), before.Operator && !before.LoggedIn.IsZero() && !after.Operator
	if !loses && !losesOperator {
		return nil
	}
	owners, operators, err := c.full(tx, before.Org, before.ID)
	if err != nil || (!loses || owners > 0) && (!losesOperator || operators > 0) {
		return err
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeLastOwner,
		Message: fmt.Sprintf("user %s is the last one with full access to the control plane", before.Email),
		Hint:    "Invite another owner with {user.invite}. The invited person must have logged in once."}
}

// full counts who has full access: the valid tokens and the users who have logged in that are owners of the org, and those of
// operators. It leaves out the one with the identifier.
func (c *Control) full(tx *kernel.Tx, org fairlead.OrgID, without string) (owners, operators int, err error) {
	count := func(id string, owns, operates bool) {
		if id == without {
			return
		}
		if owns {
			owners++
		}
		if operates {
			operators++
		}
	}
	refs, err := c.Store.AllTokenRefs(tx.Ctx, org)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range refs {
		t, err := c.Store.Token(tx.Ctx, r.V.Hash)
		if err != nil {
			return 0, 0, err
		}
		if t.V.Good(tx.Now) {
			count(t.V.ID, t.V.Owns(), t.V.Operator)
		}
	}
	users, err := c.Store.AllUsers(tx.Ctx, org)
	for _, u := range users {
		count(u.V.ID, u.V.Owns(), u.V.Operator && !u.V.LoggedIn.IsZero())
	}
	return owners, operators, err
}
