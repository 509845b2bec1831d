package view

import (
	"cmp"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Channel is an update channel that was just set.
type Channel wire.RunnerChannel

// JSON returns the wire.RunnerChannel.
func (c Channel) JSON() any { return wire.RunnerChannel(c) }

// Human writes one line.
func (c Channel) Human(p *Page) {
	p.Line("%s Channel %s is %s", Styled(p.Style.Good("✓")), c.Name, c.Version)
}

// Channels is a listing of update channels.
type Channels []wire.RunnerChannel

// JSON returns an array of wire.RunnerChannel.
func (cs Channels) JSON() any { return array(cs) }

// Human writes a table.
func (cs Channels) Human(p *Page) {
	rows := make([][]string, len(cs))
	for i, c := range cs {
		rows[i] = []string{c.Name, c.Version, cmp.Or(c.Image, "-"), p.Ago(c.SetAt)}
	}
	p.Table([]string{"NAME", "VERSION", "IMAGE", "SET"}, rows)
}

// wanted renders the version that is wanted of a runner's agents; "" if any
// will do.
func wanted(w *wire.WantedVersion) string {
	switch {
	case w == nil:
		return ""
	case w.Channel == "":
		return w.Version
	}
	return w.Version + " (channel " + w.Channel + ")"
}
