package runners

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// A runner has as many agents as somebody starts, and each has its own word.
func TestTheCustomersModeOfARunnerIsThatOfTheAgentThatMayDoTheMost(t *testing.T) {
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
		want     fairlead.RunnerMode // "": one may work, or nobody knows
	}{
		"nobody was ever there":                       {nil, ""},
		"one that may work":                           {[]Session{on(fairlead.ModeEnabled)}, ""},
		"one that is paused":                          {[]Session{on(fairlead.ModePaused)}, fairlead.ModePaused},
		"one that may work beside one that is paused": {[]Session{on(fairlead.ModePaused), on(fairlead.ModeEnabled)}, ""},
		"the mildest of three":                        {[]Session{on(fairlead.ModeDisabled), on(fairlead.ModeDraining), on(fairlead.ModeDisabled)}, fairlead.ModeDraining},
		"what a dead agent may do does not count":     {[]Session{agent("lost", fairlead.ModeEnabled), on(fairlead.ModeDisabled)}, fairlead.ModeDisabled},
		"what a dead agent was told does not count":   {[]Session{agent("lost", fairlead.ModePaused), agent("ended", fairlead.ModeDisabled)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got fairlead.RunnerMode
			if w := customerOf(tc.sessions); w != nil {
				got = w.Mode
			}
			if got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}
