package view

// AfterRestore is the result of `ops restore`.
type AfterRestore struct {
	Generation  int64 `json:"generation"`
	Installs    int   `json:"installs"`
	Components  int   `json:"components"`  // marked as unknown
	Deployments int   `json:"deployments"` // canceled
}

// JSON returns the AfterRestore.
func (r AfterRestore) JSON() any { return r }

// Human writes what changed and what to do next.
func (r AfterRestore) Human(p *Page) {
	p.Line("%s The restored table has generation %d", Styled(p.Style.Good("✓")), r.Generation)
	p.Line("  %d installs, %d components marked as unknown, %d deployments canceled", r.Installs, r.Components, r.Deployments)
	p.Line("  Start the server. Then run `fairlead install deploy NAME --plan-only` for each install.")
}
