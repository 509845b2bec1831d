package view

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Tokens is a listing of API tokens.
type Tokens []wire.Token

// JSON returns an array of wire.Token.
func (ts Tokens) JSON() any { return array(ts) }

// Human writes a table.
func (ts Tokens) Human(p *Page) {
	table(p, []string{"TOKEN", "OPERATOR", "CREATED", "USED", "EXPIRES", "ROLES"}, ts, func(t wire.Token) []string {
		name, used, expires := t.Name, "never", "never"
		if t.Current {
			name += " (yours)"
		}
		if t.First {
			name += " (first login)"
		}
		if t.LastUsedAt != nil {
			used = p.Ago(*t.LastUsedAt)
		}
		if t.ExpiresAt != nil {
			expires = Time(*t.ExpiresAt)
		}
		return []string{name, yesNo(t.Operator), p.Ago(t.CreatedAt), used, expires, Roles(t.Roles)}
	})
}

// Roles returns the roles as people read them.
func Roles(in []wire.RoleBinding) string {
	var texts []string
	for _, b := range in {
		switch {
		case b.Group != "":
			texts = append(texts, b.Role+" of group "+b.Group)
		case b.App != "":
			texts = append(texts, b.Role+" of app "+b.App)
		case b.Install != "":
			texts = append(texts, b.Role+" of install "+b.Install)
		default:
			texts = append(texts, b.Role+" of the org")
		}
	}
	return strings.Join(texts, ", ")
}

// Token is one API token.
type Token wire.Token

// JSON returns the wire.Token.
func (t Token) JSON() any { return wire.Token(t) }

// Human writes the token's fields, without the secret token.
func (t Token) Human(p *Page) {
	created, used, expires := p.Ago(t.CreatedAt), "never", "never"
	if t.CreatedBy != nil {
		created += " by " + actor(t.CreatedBy)
	}
	if t.LastUsedAt != nil {
		used = p.Ago(*t.LastUsedAt)
	}
	if t.ExpiresAt != nil {
		expires = Time(*t.ExpiresAt)
	}
	p.Fields([2]string{"Token", t.Name}, [2]string{"ID", t.ID}, [2]string{"Roles", Roles(t.Roles)}, [2]string{"Operator", yesNo(t.Operator)},
		[2]string{"Created", created}, [2]string{"Used", used}, [2]string{"Expires", expires})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// NewToken is a new API token with its secret text.
type NewToken wire.Token

// JSON returns the wire.Token.
func (t NewToken) JSON() any { return wire.Token(t) }

// Human writes only the token, so that it can be piped.
func (t NewToken) Human(p *Page) { p.Line("%s", t.Token) }
