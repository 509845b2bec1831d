package view

import (
	"encoding/base64"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// SigningKeys are the keys that runners trust.
type SigningKeys wire.Keys

// JSON returns the wire.Keys.
func (k SigningKeys) JSON() any { return wire.Keys(k) }

// Human writes a table.
func (k SigningKeys) Human(p *Page) {
	table(p, []string{"KEY", "USE", "PUBLIC KEY"}, k.Keys, func(one wire.SigningKey) []string {
		return []string{one.ID, one.Use, base64.StdEncoding.EncodeToString(one.PublicKey)}
	})
}

// Rotated are the keys after a rotation.
type Rotated wire.Keys

// JSON returns the wire.Keys.
func (k Rotated) JSON() any { return wire.Keys(k) }

// Human says which key signs now, and how to end the earlier one.
func (k Rotated) Human(p *Page) {
	p.Line("%s Rotated the keys. Runners follow at their next job.", Styled(p.Style.Good("✓")))
	SigningKeys(k).Human(p)
	for _, one := range k.Keys {
		if one.Use == wire.KeyValid {
			p.Line("  End key %s with `fairlead keys revoke %s`.", one.ID, one.ID)
		}
	}
}
