// Package retry is the time between two tries of what may work later.
package retry

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Random draws a number in [0, 1). Safe for concurrent use.
type Random func() float64

// Growing returns pauses that begin at about first and grow by half up to
// longest, each varied by up to a half: a thousand runners do not come back at
// once. The library varies by a source of its own; ours is given, so that a
// run can be repeated.
func Growing(first, longest time.Duration, random Random) backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.RandomizationFactor = first, longest, 0
	return &growing{b, random}
}

type growing struct {
	*backoff.ExponentialBackOff
	random Random
}

// NextBackOff implements backoff.BackOff.
func (g *growing) NextBackOff() time.Duration {
	d := g.ExponentialBackOff.NextBackOff()
	return d/2 + time.Duration(g.random()*float64(d))
}
