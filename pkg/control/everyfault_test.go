package control_test

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/tools/israce"
)

// everyFault runs a story repeatedly, each time with one fault at the next engine call,
// until the story has no more calls.
type everyFault struct {
	faults []enginetest.Fault  // faults to inject; none: all but a stale read
	next   func(place int) int // distance from a place to the next one; nil: 1
	least  int                 // the fewest places of the story; fewer fail the test
}

// thinned returns n if only every n-th place is tested. The race detector makes each place
// ten times slower, and each check also tests all places without it.
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

// run runs the story on a new engine in a bubble. It injects no fault before the story
// sets armed.
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
				t.Errorf("the fault was injected at %d places, want at least %d", tried, f.least)
			}
		})
	}
}
