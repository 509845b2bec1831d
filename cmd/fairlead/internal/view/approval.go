package view

import "strings"

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
