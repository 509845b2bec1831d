package view

import (
	"strconv"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Limits are the limits of an org and of a token.
type Limits wire.Limits

// JSON returns the wire.Limits.
func (l Limits) JSON() any { return wire.Limits(l) }

// Human writes a table.
func (l Limits) Human(p *Page) {
	table(p, []string{"LIMIT", "OF", "USED", "MOST"}, l.Limits, func(one wire.Limit) []string {
		used := "-"
		if one.Used != nil {
			used = strconv.Itoa(*one.Used)
		}
		return []string{one.Name, one.Of, used, strconv.Itoa(one.Limit)}
	})
}
