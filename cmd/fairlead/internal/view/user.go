package view

import (
	"cmp"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Users is a listing of users.
type Users []wire.User

// JSON returns an array of wire.User.
func (us Users) JSON() any { return array(us) }

// Human writes a table.
func (us Users) Human(p *Page) {
	table(p, []string{"EMAIL", "NAME", "OPERATOR", "INVITED", "LOGGED IN", "ROLES"}, us, func(u wire.User) []string {
		return []string{u.Email, cmp.Or(u.Name, "-"), yesNo(u.Operator), p.Ago(u.CreatedAt), loggedIn(p, u), Roles(u.Roles)}
	})
}

func loggedIn(p *Page, u wire.User) string {
	if u.LoggedInAt == nil {
		return "never"
	}
	return p.Ago(*u.LoggedInAt)
}

// User is one user.
type User wire.User

// JSON returns the wire.User.
func (u User) JSON() any { return wire.User(u) }

// Human writes the user's fields and the logins that are not over.
func (u User) Human(p *Page) {
	invited := p.Ago(u.CreatedAt)
	if u.CreatedBy != nil {
		invited += " by " + actor(u.CreatedBy)
	}
	p.Fields([2]string{"Email", u.Email}, [2]string{"Name", u.Name}, [2]string{"ID", u.ID}, [2]string{"Roles", Roles(u.Roles)}, [2]string{"Operator", yesNo(u.Operator)},
		[2]string{"Invited", invited}, [2]string{"Issuer", u.Issuer}, [2]string{"Logged in", loggedIn(p, wire.User(u))})
	for _, l := range u.Logins {
		p.Fields([2]string{"Login", l.ID + " until " + Time(l.ExpiresAt)})
	}
}

// LoginLink is a new login link.
type LoginLink wire.LoginLink

// JSON returns the wire.LoginLink.
func (l LoginLink) JSON() any { return wire.LoginLink(l) }

// Human writes only the token, so that it can be piped.
func (l LoginLink) Human(p *Page) { p.Line("%s", l.Token) }

// Issuers is a listing of issuers at which people log in.
type Issuers []wire.LoginIssuer

// JSON returns an array of wire.LoginIssuer.
func (is Issuers) JSON() any { return array(is) }

// Human writes a table.
func (is Issuers) Human(p *Page) {
	table(p, []string{"NAME", "ISSUER", "CLIENT", "SET"}, is, func(i wire.LoginIssuer) []string {
		return []string{i.Name, i.Issuer, i.ClientID, p.Ago(i.SetAt)}
	})
}

// Caller is who calls the control plane.
type Caller wire.Caller

// JSON returns the wire.Caller.
func (c Caller) JSON() any { return wire.Caller(c) }

// Human writes the caller's fields.
func (c Caller) Human(p *Page) {
	expires := "never"
	if c.ExpiresAt != nil {
		expires = Time(*c.ExpiresAt)
	}
	p.Fields([2]string{"You are", c.Kind + " " + c.Name}, [2]string{"ID", c.ID}, [2]string{"Org", c.Org}, [2]string{"Roles", Roles(c.Roles)}, [2]string{"Operator", yesNo(c.Operator)},
		[2]string{"Expires", expires})
}
