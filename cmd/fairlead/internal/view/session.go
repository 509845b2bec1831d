package view

import (
	"cmp"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Login is the control plane that the CLI calls from now on.
type Login struct {
	URL    string      `json:"url"`
	Meta   wire.Meta   `json:"control_plane"`
	Config string      `json:"config"`
	Caller wire.Caller `json:"caller"` // as which the CLI calls
}

// JSON returns {"url", "control_plane", "config", "caller"}.
func (l Login) JSON() any { return l }

// Human writes one line, and for a person a second one.
func (l Login) Human(p *Page) {
	p.Line("%s Logged in to %s (Fairlead %s)", Styled(p.Style.Good("✓")), l.URL, cmp.Or(l.Meta.Version, "unknown"))
	if l.Caller.Kind != "token" && l.Caller.ExpiresAt != nil {
		p.Line("  as %s (%s) in org %s, until %s", l.Caller.Name, Roles(l.Caller.Roles), l.Caller.Org, Time(*l.Caller.ExpiresAt))
	}
}

// Version is the version of this program and of the control plane.
type Version struct {
	Version      string `json:"version"`
	Go           string `json:"go"`
	Platform     string `json:"platform"`
	URL          string `json:"url,omitempty"`
	ControlPlane string `json:"control_plane,omitempty"` // version of the control plane; empty if the control plane did not answer
}

// JSON returns the versions.
func (v Version) JSON() any { return v }

// Human writes one line for each version.
func (v Version) Human(p *Page) {
	p.Line("fairlead %s (%s, %s)", v.Version, v.Go, v.Platform)
	if v.ControlPlane != "" {
		p.Line("control plane %s at %s", v.ControlPlane, v.URL)
	}
}
