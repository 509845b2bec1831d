package view

import (
	"strings"
	"time"
)

// ApprovalKey is a new key that signs approvals.
type ApprovalKey struct {
	ID     string `json:"id"`
	Public string `json:"public"` // PEM
}

// JSON returns the key's id and its public half.
func (k ApprovalKey) JSON() any { return k }

// Human writes only the public key, so that it can be piped.
func (k ApprovalKey) Human(p *Page) {
	for line := range strings.Lines(k.Public) {
		p.Line("%s", strings.TrimSpace(line))
	}
}

// StandingApproval is a standing approval that was put into a ledger.
type StandingApproval struct {
	ID    string    `json:"id"`
	Key   string    `json:"key"` // ID of the key that signed it
	Uses  int       `json:"uses"`
	Until time.Time `json:"until"`
}

// JSON returns the approval's identifier and limits.
func (a StandingApproval) JSON() any { return a }

// Human writes one line.
func (a StandingApproval) Human(p *Page) {
	p.Line("Approval %s permits %d applies until %s. Key %s signed it.", a.ID, a.Uses, Time(a.Until), a.Key)
}
