// Package retry tries again what may work later.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Policy says how often something is tried. Pauses begin at about First and grow
// by half up to Longest, each varied by up to a half: a thousand runners do not
// come back at once.
type Policy struct {
	First, Longest time.Duration
	Within         time.Duration        // of all tries; 0: until the context ends
	Passing        func(err error) bool // reports whether it may work later; nil: it may
	Random         func() float64       // in [0, 1), safe for concurrent use; nil: math/rand
}

// Do calls f until it succeeds, fails in a way that does not pass, or the time is
// over. The error is the last one of f, and rather why f failed than that the
// context ended.
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
	}, backoff.WithBackOff(p.Pauses()), backoff.WithMaxElapsedTime(p.Within))
	if err != nil {
		err = last
	}
	return v, err
}

// Run is Do for what returns nothing.
func Run(ctx context.Context, p Policy, f func(context.Context) error) error {
	_, err := Do(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// Sleep waits for d. It returns the error of ctx if that ends first.
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

// Pauses returns the pauses between tries, for a loop that does more than try
// again. The library varies by a source of its own; ours is given, so that a run
// can be repeated.
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
