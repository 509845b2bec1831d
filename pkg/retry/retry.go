// Package retry repeats calls whose failure may be temporary.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Policy defines for how long a call is repeated, and the pauses between the calls. The
// first pause is about First. Each next pause is 1.5 times the pause before it, up to
// Longest. Each pause is varied at random by up to a half, so that a thousand runners do
// not return at the same time.
type Policy struct {
	First, Longest time.Duration
	Within         time.Duration        // limit for all calls and pauses; 0: until the context ends
	Tries          uint                 // limit for the number of calls; 0: none
	Passing        func(err error) bool // reports whether err is temporary; nil: all errors are temporary
	Random         func() float64       // in [0, 1), safe for concurrent use; nil: math/rand
}

// Do calls f until f succeeds, the error of f is not temporary, or a limit is reached. It
// returns the last error of f that f returned before the context ended, because this
// error names the cause. If there is no such error, it returns the last error of f.
func Do[T any](ctx context.Context, p Policy, f func(context.Context) (T, error)) (T, error) {
	var last error
	v, err := backoff.Retry(ctx, func() (T, error) {
		v, err := f(ctx)
		if err != nil && (last == nil || ctx.Err() == nil) {
			last = err
		}
		if err != nil && p.Passing != nil && !p.Passing(err) {
			err = backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithBackOff(p.Pauses()), backoff.WithMaxElapsedTime(p.Within), backoff.WithMaxTries(p.Tries))
	if err != nil {
		err = last
	}
	return v, err
}

// Run is Do for a function without a result.
func Run(ctx context.Context, p Policy, f func(context.Context) error) error {
	_, err := Do(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// Sleep waits for d. If ctx ends first, Sleep returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pauses returns the pauses between calls, for a caller with its own loop. It varies
// them by Random and not by the library's own random source, so that a run can be
// reproduced.
func (p Policy) Pauses() backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.RandomizationFactor = p.First, p.Longest, 0
	g := &growing{b, p.Random}
	if g.random == nil {
		g.random = rand.Float64
	}
	return g
}

type growing struct {
	*backoff.ExponentialBackOff
	random func() float64
}

// NextBackOff implements backoff.BackOff.
func (g *growing) NextBackOff() time.Duration {
	d := g.ExponentialBackOff.NextBackOff()
	return d/2 + time.Duration(g.random()*float64(d))
}
