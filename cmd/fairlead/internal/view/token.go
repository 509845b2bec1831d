package view

import (
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Tokens is a listing of API tokens.
type Tokens []wire.Token

// JSON returns an array of wire.Token.
func (ts Tokens) JSON() any { return array(ts) }

// Human writes a table.
func (ts Tokens) Human(p *Page) {
	table(p, []string{"TOKEN", "OPERATOR", "CREATED", "USED", "EXPIRES"}, ts, func(t wire.Token) []string {
		name, used, expires := t.Name, "never", "never"
		if t.Current {
			name += " (yours)"
		}
		if t.LastUsedAt != nil {
			used = p.Ago(*t.LastUsedAt)
		}
		if t.ExpiresAt != nil {
			expires = Time(*t.ExpiresAt)
		}
		return []string{name, yesNo(t.Operator), p.Ago(t.CreatedAt), used, expires}
	})
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
