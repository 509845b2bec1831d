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
	pauses := retry.Policy{First: 100 * time.Millisecond, Longest: 3 * time.Second, Passing: func(err error) bool {
		if !mayPass(err) {
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
