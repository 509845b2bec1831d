package control_test

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/tools/israce"
)

// everyFault tells a story again and again, each time with one fault at the next
// of the places that it can befall, until there is no such place.
type everyFault struct {
	faults []enginetest.Fault  // what can befall; none: all but a stale read
	next   func(place int) int // how far it is from a place to the next that is tried; nil: 1
	least  int                 // places that there must be, or the story has been emptied
}

// thinned returns n if every n-th place is tried. The race detector makes each
// ten times as slow; every run tries all places without it as well.
func thinned() int {
	switch {
	case !israce.On:
		return 1
	case testing.Short():
		return 12
	default:
		return 4
	}
}

// run tells the story on an engine of its own, in a bubble. No fault befalls
// before the story has set armed.
func (f everyFault) run(t *testing.T, story func(t *testing.T, e engine.Engine, armed *bool)) {
	if f.faults == nil {
		f.faults = []enginetest.Fault{enginetest.NotStored, enginetest.Stored, enginetest.Conflict}
	}
	if f.next == nil {
		f.next = func(int) int { return 1 }
	}
	next := f.next
	f.next = func(place int) int { return thinned() * next(place) }
	f.least /= thinned()
	for _, fault := range f.faults {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			tried := 0
			for place, fired := 1, true; fired && !t.Failed(); place += f.next(place) {
				fired = false
				synctest.Test(t, func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("with %s at place %d", fault, place)
						}
					}()
					armed, plan := false, enginetest.Nth(fault, place)
					story(t, enginetest.Faulty(enginetest.Memory(), func(c enginetest.Call) enginetest.Fault {
						if !armed {
							return enginetest.NoFault
						}
						got := plan(c)
						fired = fired || got != enginetest.NoFault
						return got
					}), &armed)
				})
				if fired {
					tried++
				}
			}
			if tried < f.least && !t.Failed() {
				t.Errorf("it befell %d places only, of at least %d", tried, f.least)
			}
		})
	}
}
