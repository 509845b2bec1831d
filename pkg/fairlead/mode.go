package fairlead

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// RunnerMode is whether a runner takes new jobs. The vendor, who operates the
// control plane, sets one for the runner; its customer sets one for each agent,
// where that runs. EffectiveMode says what holds. The zero mode is ModeEnabled.
type RunnerMode string

// The modes, from the mildest to the strictest.
const (
	ModeEnabled  RunnerMode = "enabled"  // takes jobs
	ModePaused   RunnerMode = "paused"   // takes none for a while: they wait, and what runs goes on
	ModeDraining RunnerMode = "draining" // as paused, because the runner is to go
	ModeDisabled RunnerMode = "disabled" // takes none; set by the customer, what runs is interrupted as well
)

// RunnerModes lists every mode, from the mildest to the strictest.
func RunnerModes() []RunnerMode {
	return []RunnerMode{ModeEnabled, ModePaused, ModeDraining, ModeDisabled}
}

// ParseRunnerMode reads a mode; "" is ModeEnabled.
func ParseRunnerMode(s string) (RunnerMode, error) {
	m := cmp.Or(RunnerMode(s), ModeEnabled)
	if !slices.Contains(RunnerModes(), m) {
		return "", fmt.Errorf("%q is no mode: enabled, paused, draining and disabled are", s)
	}
	return m, nil
}

// TakesJobs reports whether new jobs are taken.
func (m RunnerMode) TakesJobs() bool { return cmp.Or(m, ModeEnabled) == ModeEnabled }

// Compare returns a number below 0 if m is milder than the other mode, above 0
// if it is stricter, and 0 if both are the same.
func (m RunnerMode) Compare(other RunnerMode) int {
	modes := RunnerModes()
	return slices.Index(modes, cmp.Or(m, ModeEnabled)) - slices.Index(modes, cmp.Or(other, ModeEnabled))
}

// EffectiveMode returns the mode that holds: the stricter of the vendor's and the
// customer's. Neither can overrule the other.
func EffectiveMode(vendor, customer RunnerMode) RunnerMode {
	if customer.Compare(vendor) > 0 {
		return customer
	}
	return cmp.Or(vendor, ModeEnabled)
}

// CustomerMode is the mode that a customer has set for an agent.
type CustomerMode struct {
	Mode   RunnerMode `json:"mode"`
	Since  time.Time  `json:"since,omitzero"`   // by the clock of the agent's machine; zero: not known
	Reason string     `json:"reason,omitempty"` // as the customer wrote it, in one line
}

// OrEnabled returns the mode; of nil, ModeEnabled.
func (c *CustomerMode) OrEnabled() RunnerMode {
	if c == nil {
		return ModeEnabled
	}
	return c.Mode
}
