package main

import (
	"math"
	"testing"
	"time"
)

// `make bench-aws` fails if a figure is above its goal, if it misses its goal by more than is known, and if a known miss is over.
func TestFigureAboveItsGoalFails(t *testing.T) {
	defer func(before map[string]float64) { missed = before }(missed)
	missed = map[string]float64{"known": 0.2}
	for _, tt := range []struct {
		name, reference string
		value           float64
		ok              bool
	}{
		{"new", "goal ≤ 0.15: x", 0.15, true},
		{"new", "goal ≤ 0.15: x", 0.151, false},
		{"new", "goal ≥ 100; x", 99, false},
		{"new", "goal ≥ 100; x", 100, true},
		{"new", "no goal", 1, false},
		{"known", "goal ≤ 0.15: x", 0.2, true},
		{"known", "goal ≤ 0.15: x", 0.21, false},
		{"known", "goal ≤ 0.15: x", 0.15, false},
	} {
		if err := checkGoal(Figure{Name: tt.name, Reference: tt.reference}, tt.value); (err == nil) != tt.ok {
			t.Errorf("%s with %v, %s: %v", tt.name, tt.value, tt.reference, err)
		}
	}
}

// In a deployment of examples/shop whose jobs last a minute, no step waits for more than five minutes: 7, 6, 4, 2, 1 and 0 steps wait in
// its six minutes. The seven look each second in the first minute, and then every three.
func TestWarmStepsWaitForFiveMinutesAtMost(t *testing.T) {
	seconds, looks := warmWaits(time.Minute)
	if want := 60. * (7 + 6 + 4 + 2 + 1) / 8; seconds != want {
		t.Errorf("with jobs of a minute steps wait %.1f s for each job, want %.1f s", seconds, want)
	}
	if want := 60. * (7 + (6+4+2+1)/3.) / 8; math.Abs(looks-want) > 1e-9 {
		t.Errorf("with jobs of a minute steps look %.1f times for each job, want %.1f", looks, want)
	}
	// With jobs of ten minutes each step waits for five of them, and is replaced at the next claim.
	seconds, looks = warmWaits(10 * time.Minute)
	if want := 300. * (7 + 6 + 4 + 2 + 1) / 8; seconds != want {
		t.Errorf("with jobs of ten minutes steps wait %.1f s for each job, want %.1f s", seconds, want)
	}
	if want := (60 + 240/3.) * (7 + 6 + 4 + 2 + 1) / 8; looks != want {
		t.Errorf("with jobs of ten minutes steps look %.1f times for each job, want %.1f", looks, want)
	}
}
