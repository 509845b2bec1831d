package view

import "github.com/fairlead/fairlead/pkg/api/wire"

// Migration is the move of an install's state. It has succeeded or still runs.
type Migration struct {
	Install string
	Job     wire.Job
}

// JSON returns the wire.Job.
func (m Migration) JSON() any { return m.Job }

// Human writes one line.
func (m Migration) Human(p *Page) {
	if m.Job.State == "succeeded" {
		p.Line("%s The state of install %s is in its runner's state storage", Styled(p.Style.Good("✓")), m.Install)
		return
	}
	p.Line("Job %s moves the state of install %s; `fairlead job logs %s` follows it", m.Job.ID, m.Install, m.Job.ID)
}
