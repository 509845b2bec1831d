package retry

import (
	"context"
	"errors"
	"fmt"
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
		{"the shortest pauses are half of the policy's", 0, []time.Duration{100, 150, 225, 300, 300}},
		{"the middle pauses are the policy's", 0.5, []time.Duration{200, 300, 450, 600, 600}},
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

func TestTemporaryErrorsAreRetried(t *testing.T) {
	busy, wrong := errors.New("busy"), errors.New("wrong")
	for _, tt := range []struct {
		name  string
		fails []error // of the calls, in order; then it succeeds
		tries int
		want  error
	}{
		{"success needs one call", nil, 1, nil},
		{"a temporary error is retried", []error{busy, busy}, 3, nil},
		{"another error ends the calls", []error{busy, wrong, busy}, 2, wrong},
		{"the last error is returned when the time is over", slices.Repeat([]error{busy}, 1000), 0, busy},
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

// The error of f names the cause; the error of the context does not.
func TestErrorOfTheCallIsReturnedAtTheDeadline(t *testing.T) {
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

func TestTriesLimitTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := Run(t.Context(), Policy{First: time.Second, Longest: time.Second, Tries: 3}, func(context.Context) error {
			calls++
			return fmt.Errorf("call %d", calls)
		})
		if calls != 3 || err == nil || err.Error() != "call 3" {
			t.Errorf("%d calls, %v; want 3 calls and the error of the last", calls, err)
		}
	})
}
