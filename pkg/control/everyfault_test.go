package control_test

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/tools/israce"
)

// everyFault runs a story many times, each time with one fault. The first run has the fault
// at the first engine call, and each later run at a later call. The runs end when the story
// ends before it reaches the call with the fault.
type everyFault struct {
	faults []enginetest.Fault  // the faults to inject; nil: all faults except a stale read
	next   func(place int) int // returns the distance from a tested place to the next tested place; nil: each place is tested
	least  int                 // if the fault was injected at fewer places, the test fails
}

// thinned returns n if the test uses only every n-th place. With the race detector, each
// place is ten times slower. Each check also runs the test without the race detector, and
// this run uses all places.
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

// run runs the story, each time on a new engine and in a new bubble. It injects no fault
// before the story sets *armed to true.
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
