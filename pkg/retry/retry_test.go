package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesGrow(t *testing.T) {
	for _, tt := range []struct {
		name   string
		random float64
		want   []time.Duration
	}{
		{"the shortest pauses are half as long", 0, []time.Duration{100, 150, 225, 300, 300}},
		{"the middle ones are as they were asked for", 0.5, []time.Duration{200, 300, 450, 600, 600}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := Policy{First: 200 * time.Millisecond, Longest: 600 * time.Millisecond, Random: func() float64 { return tt.random }}.Pauses()
			b.Reset()
			for i, want := range tt.want {
				if got := b.NextBackOff(); got != want*time.Millisecond {
					t.Errorf("pause %d is %s, want %s", i+1, got, want*time.Millisecond)
				}
			}
		})
	}
}

func TestDoTriesAgainWhatPasses(t *testing.T) {
	busy, wrong := errors.New("busy"), errors.New("wrong")
	for _, tt := range []struct {
		name  string
		fails []error // of the tries, one after the other; then it succeeds
		tries int
		want  error
	}{
		{"what succeeds is tried once", nil, 1, nil},
		{"what passes is tried again", []error{busy, busy}, 3, nil},
		{"what does not pass is not", []error{busy, wrong, busy}, 2, wrong},
		{"the last failure is returned when the time is over", slices.Repeat([]error{busy}, 1000), 0, busy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := Run(t.Context(), Policy{First: time.Second, Longest: time.Second, Within: time.Minute,
					Passing: func(err error) bool { return err == busy }}, func(context.Context) error {
					tries++
					if tries > len(tt.fails) {
						return nil
					}
					return tt.fails[tries-1]
				})
				if err != tt.want || tt.tries > 0 && tries != tt.tries {
					t.Errorf("after %d tries: %v", tries, err)
				}
			})
		})
	}
}

// Why it failed says more than that the time was over.
func TestTheFailureIsReturnedWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		busy := errors.New("busy")
		_, err := Do(ctx, Policy{First: 300 * time.Millisecond, Longest: time.Second}, func(ctx context.Context) (int, error) {
			if Sleep(ctx, 100*time.Millisecond) != nil {
				return 0, ctx.Err()
			}
			return 0, busy
		})
		if err != busy {
			t.Errorf("got %v", err)
		}
	})
}
