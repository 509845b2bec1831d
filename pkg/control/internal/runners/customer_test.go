package runners

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// A runner has as many agents as somebody starts, and each has its own word.
func TestTheCustomersWordOnARunnerIsThatOfTheAgentThatMayDoTheMost(t *testing.T) {
	agent := func(state string, mode placement.State) Session {
		s := Session{State: state}
		if mode != placement.Enabled {
			s.Customer = &store.CustomerWord{Mode: mode, Since: time.Unix(1, 0)}
		}
		return s
	}
	on := func(mode placement.State) Session { return agent("online", mode) }
	for name, tc := range map[string]struct {
		sessions []Session
		want     placement.State // "": one may work, or nobody knows
	}{
		"nobody was ever there":                       {nil, ""},
		"one that may work":                           {[]Session{on(placement.Enabled)}, ""},
		"one that is paused":                          {[]Session{on(placement.Paused)}, placement.Paused},
		"one that may work beside one that is paused": {[]Session{on(placement.Paused), on(placement.Enabled)}, ""},
		"the mildest of three":                        {[]Session{on(placement.Disabled), on(placement.Draining), on(placement.Disabled)}, placement.Draining},
		"what a dead agent may do does not count":     {[]Session{agent("lost", placement.Enabled), on(placement.Disabled)}, placement.Disabled},
		"what a dead agent was told does not count":   {[]Session{agent("lost", placement.Paused), agent("ended", placement.Disabled)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got placement.State
			if w := customerOf(tc.sessions); w != nil {
				got = w.Mode
			}
			if got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}
