package fairlead

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// RunnerMode states whether a runner accepts new jobs. The vendor sets one mode for the runner.
// The customer sets a mode for each agent, on the agent's machine. EffectiveMode combines the
// vendor's and the customer's mode.
// The zero mode is ModeEnabled.
type RunnerMode string

// The modes, from the least to the most strict.
const (
	ModeEnabled  RunnerMode = "enabled"  // accept jobs
	ModePaused   RunnerMode = "paused"   // accept no jobs for now: queued jobs wait, running jobs continue
	ModeDraining RunnerMode = "draining" // like paused, before the runner is removed
	ModeDisabled RunnerMode = "disabled" // accept no jobs; if the customer set this mode, running jobs are interrupted
)

// RunnerModes lists every mode, from the least to the most strict.
func RunnerModes() []RunnerMode {
	return []RunnerMode{ModeEnabled, ModePaused, ModeDraining, ModeDisabled}
}

// ParseRunnerMode parses a mode; "" is ModeEnabled.
func ParseRunnerMode(s string) (RunnerMode, error) {
	m := cmp.Or(RunnerMode(s), ModeEnabled)
	if !slices.Contains(RunnerModes(), m) {
		return "", fmt.Errorf("%q is not a mode: use enabled, paused, draining or disabled", s)
	}
	return m, nil
}

// TakesJobs reports whether the runner accepts new jobs.
func (m RunnerMode) TakesJobs() bool { return cmp.Or(m, ModeEnabled) == ModeEnabled }

// Compare returns a number below 0 if m is less strict than other, above 0 if it is stricter,
// and 0 if they are the same.
func (m RunnerMode) Compare(other RunnerMode) int {
	modes := RunnerModes()
	return slices.Index(modes, cmp.Or(m, ModeEnabled)) - slices.Index(modes, cmp.Or(other, ModeEnabled))
}

// EffectiveMode returns the mode that applies: the stricter of the vendor's mode and the
// customer's mode. So neither the vendor nor the customer can allow jobs that the other refuses.
func EffectiveMode(vendor, customer RunnerMode) RunnerMode {
	if customer.Compare(vendor) > 0 {
		return customer
	}
	return cmp.Or(vendor, ModeEnabled)
}

// CustomerMode is the mode that the customer set for an agent.
type CustomerMode struct {
	Mode   RunnerMode `json:"mode"`
	Since  time.Time  `json:"since,omitzero"`   // clock of the agent's machine; zero: not known
	Reason string     `json:"reason,omitempty"` // free text of the customer, one line
}

// OrEnabled returns the mode, or ModeEnabled if c is nil.
func (c *CustomerMode) OrEnabled() RunnerMode {
	if c == nil {
		return ModeEnabled
	}
	return c.Mode
}
