package view

import (
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Agents is a listing of the agents that have enrolled for a runner with a key.
type Agents []wire.Agent

// JSON returns an array of wire.Agent.
func (as Agents) JSON() any { return array(as) }

// Human writes a table.
func (as Agents) Human(p *Page) {
	table(p, []string{"KEY", "ENROLLED", "STATE", "LAST SEEN"}, as, func(a wire.Agent) []string {
		state, seen := "-", "-"
		if a.Session != nil {
			state, seen = a.Session.State, p.Ago(a.Session.LastSeen)
		}
		if a.RevokedAt != nil {
			state = "revoked"
		}
		return []string{a.Key, p.Ago(a.EnrolledAt), state, seen}
	})
}
