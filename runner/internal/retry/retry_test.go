package retry

import (
	"testing"
	"time"
)

func TestGrowing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		random float64
		want   []time.Duration
	}{
		{"the shortest pauses are half as long", 0, []time.Duration{100, 150, 225, 300, 300}},
		{"the middle ones are as they were asked for", 0.5, []time.Duration{200, 300, 450, 600, 600}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := Growing(200*time.Millisecond, 600*time.Millisecond, func() float64 { return tt.random })
			b.Reset()
			for i, want := range tt.want {
				if got := b.NextBackOff(); got != want*time.Millisecond {
					t.Errorf("pause %d is %s, want %s", i+1, got, want*time.Millisecond)
				}
			}
		})
	}
}
