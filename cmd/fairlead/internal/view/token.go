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
	rows := make([][]string, len(ts))
	for i, t := range ts {
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
		rows[i] = []string{name, yesNo(t.Operator), p.Ago(t.CreatedAt), used, expires}
	}
	p.Table([]string{"TOKEN", "OPERATOR", "CREATED", "USED", "EXPIRES"}, rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// NewToken is an API token that was just made, with what is sent.
type NewToken wire.Token

// JSON returns the wire.Token.
func (t NewToken) JSON() any { return wire.Token(t) }

// Human writes the token and nothing else, so that it can be piped.
func (t NewToken) Human(p *Page) { p.Line("%s", t.Token) }

// Revoked says that an API token is refused from now on.
type Revoked struct{ Name string }

// JSON returns {"revoked"}.
func (r Revoked) JSON() any {
	return struct {
		Revoked string `json:"revoked"`
	}{r.Name}
}

// Human writes one line.
func (r Revoked) Human(p *Page) {
	p.Line("%s Revoked token %s", Styled(p.Style.Good("✓")), r.Name)
}
