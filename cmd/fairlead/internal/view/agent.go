package view

import "github.com/fairlead/fairlead/pkg/api/wire"

// Agents is a listing of the agents that have enrolled with keys for a runner.
type Agents []wire.Agent

// JSON returns an array of wire.Agent.
func (as Agents) JSON() any { return array(as) }

// Human writes a table.
func (as Agents) Human(p *Page) {
	rows := make([][]string, len(as))
	for i, a := range as {
		state, seen := "-", "-"
		if a.Session != nil {
			state, seen = a.Session.State, p.Ago(a.Session.LastSeen)
		}
		if a.RevokedAt != nil {
			state = "revoked"
		}
		rows[i] = []string{a.Key, p.Ago(a.EnrolledAt), state, seen}
	}
	p.Table([]string{"KEY", "ENROLLED", "STATE", "LAST SEEN"}, rows)
}

// RevokedKey says that a key is refused from now on.
type RevokedKey struct {
	Key string `json:"revoked"`
}

// JSON returns {"revoked"}.
func (r RevokedKey) JSON() any { return r }

// Human writes one line.
func (r RevokedKey) Human(p *Page) {
	p.Line("%s Revoked key %s", Styled(p.Style.Good("✓")), r.Key)
}
