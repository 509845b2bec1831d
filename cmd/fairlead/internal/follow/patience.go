package follow

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
)

// quiet is how long the control plane may be away before it is worth a word.
const quiet = time.Second

// patience asks again while the control plane is away, as it is for a moment
// when it restarts: all goroutines of one follower share it, so that the
// person is told once that it is gone and once that it is back.
type patience struct {
	most time.Duration
	now  func() time.Time
	tell func(text string)

	mu   sync.Mutex
	away bool
}

// ask calls f until it succeeds, fails for good, or the control plane has been
// away for p.most. Pauses grow from 100 ms to 3 s.
func ask[T any](ctx context.Context, p *patience, f func(context.Context) (T, error)) (T, error) {
	var since time.Time // of the first failure in a row
	pauses := &backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.2, Multiplier: 1.6, MaxInterval: 3 * time.Second}
	out, err := backoff.Retry(ctx, func() (T, error) {
		out, err := f(ctx)
		switch {
		case err == nil:
			p.back()
			return out, nil
		case !mayPass(err):
			return out, backoff.Permanent(err)
		case since.IsZero():
			since = p.now()
		case p.now().Sub(since) > p.most:
			return out, backoff.Permanent(err)
		}
		if p.now().Sub(since) >= quiet {
			p.gone()
		}
		return out, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	if permanent, ok := errors.AsType[*backoff.PermanentError](err); ok {
		err = permanent.Err
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, err
}

// mayPass reports whether err is of the kind that a restart causes.
func mayPass(err error) bool {
	if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		return true
	}
	for _, status := range []int{429, 502, 503, 504} {
		if client.HasStatus(err, status) {
			return true
		}
	}
	return false
}

func (p *patience) gone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.away {
		p.away = true
		p.tell("the control plane does not answer; trying again for " + view.Seconds(p.most))
	}
}

func (p *patience) back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		p.away = false
		p.tell("the control plane answers again")
	}
}
