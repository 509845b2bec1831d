package runners

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// A runner can have several agents, and the customer sets the mode of each agent. The mode
// of the runner is the least strict mode of its online agents.
func TestCustomerModeIsOfLeastRestrictedAgent(t *testing.T) {
	agent := func(state string, mode fairlead.RunnerMode) Session {
		s := Session{State: state}
		if mode != fairlead.ModeEnabled {
			s.Customer = &fairlead.CustomerMode{Mode: mode, Since: time.Unix(1, 0)}
		}
		return s
	}
	on := func(mode fairlead.RunnerMode) Session { return agent("online", mode) }
	for name, tc := range map[string]struct {
		sessions []Session
		want     fairlead.RunnerMode // "" if an online agent is enabled, or if no agent is online
	}{
		"no agent was ever online":             {nil, ""},
		"one enabled agent":                    {[]Session{on(fairlead.ModeEnabled)}, ""},
		"one paused agent":                     {[]Session{on(fairlead.ModePaused)}, fairlead.ModePaused},
		"an enabled and a paused agent":        {[]Session{on(fairlead.ModePaused), on(fairlead.ModeEnabled)}, ""},
		"the least restrictive of three":       {[]Session{on(fairlead.ModeDisabled), on(fairlead.ModeDraining), on(fairlead.ModeDisabled)}, fairlead.ModeDraining},
		"an enabled lost agent does not count": {[]Session{agent("lost", fairlead.ModeEnabled), on(fairlead.ModeDisabled)}, fairlead.ModeDisabled},
		"a paused lost agent does not count":   {[]Session{agent("lost", fairlead.ModePaused), agent("ended", fairlead.ModeDisabled)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got fairlead.RunnerMode
			if w := customerOf(tc.sessions); w != nil {
				got = w.Mode
			}
			if got != tc.want {
				t.Errorf("customer mode %q, want %q", got, tc.want)
			}
		})
	}
}
