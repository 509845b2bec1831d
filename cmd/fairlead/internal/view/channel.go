package view

import (
	"cmp"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Channels is a listing of update channels.
type Channels []wire.RunnerChannel

// JSON returns an array of wire.RunnerChannel.
func (cs Channels) JSON() any { return array(cs) }

// Human writes a table.
func (cs Channels) Human(p *Page) {
	table(p, []string{"NAME", "VERSION", "IMAGE", "SET"}, cs, func(c wire.RunnerChannel) []string {
		return []string{c.Name, c.Version, cmp.Or(c.Image, "-"), p.Ago(c.SetAt)}
	})
}

// wanted renders the wanted version of a runner's agents; "" if any version is
// accepted.
func wanted(w *wire.WantedVersion) string {
	switch {
	case w == nil:
		return ""
	case w.Channel == "":
		return w.Version
	}
	return w.Version + " (channel " + w.Channel + ")"
}
