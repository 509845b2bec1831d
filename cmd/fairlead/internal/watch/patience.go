package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/retry"
)

// quiet is how long the control plane may be unreachable before the person is
// notified.
const quiet = time.Second

// patience retries requests while the control plane is unreachable, for example when
// the control plane restarts. All goroutines of one follower share one patience, so
// that the person is notified once when the control plane stops answering, and once
// when it answers again.
type patience struct {
	most time.Duration
	now  func() time.Time
	tell func(text string)

	mu   sync.Mutex
	away bool
}

// ask calls f until f succeeds, f returns a permanent error, ctx ends, or the control
// plane has been unreachable for p.most. The pauses between two calls grow from 100 ms
// to 3 s.
func ask[T any](ctx context.Context, p *patience, f func(context.Context) (T, error)) (T, error) {
	var since time.Time // time of the first failure
	pauses := retry.Policy{First: 100 * time.Millisecond, Longest: 3 * time.Second, Passing: func(err error) bool {
		if !temporary(err) {
			return false
		}
		if since.IsZero() {
			since = p.now()
		}
		away := p.now().Sub(since)
		if away >= quiet && away <= p.most {
			p.gone()
		}
		return away <= p.most
	}}
	out, err := retry.Do(ctx, pauses, func(ctx context.Context) (T, error) {
		out, err := f(ctx)
		if err == nil {
			p.back()
		}
		return out, err
	})
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, err
}

// temporary reports whether a restart of the control plane can cause err.
func temporary(err error) bool {
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
