package agent

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/retry"
)

// The agent draws its pause after a refusal from the whole window, so that a crowd of agents
// arrives evenly. The stack lets 300 agents a second log in (infra/control): 10,000 agents in 45 s
// are 220 a second. The window doubles after each refusal in a row, for a larger crowd.
const (
	firstWindow   = 45 * time.Second
	longestWindow = 90 * time.Second
)

// overload delays the requests that agents send before they have a session, after the control plane
// refused one because of too many requests (429, 503). All loops of an agent share it. After another
// error, such as a refused connection, it delays nothing: a restarted control plane is found quickly.
// Safe for concurrent use.
type overload struct {
	random func() float64
	now    func() time.Time

	mu     sync.Mutex
	window time.Duration // of the next refusal
	until  time.Time     // no request before; zero: at any time
	err    error         // the last refusal
}

func newOverload(random func() float64, now func() time.Time) *overload {
	return &overload{random: random, now: now, window: firstWindow}
}

// wait returns when a request may be sent. If ctx ends first, it returns the refusal that caused the
// pause.
func (o *overload) wait(ctx context.Context) error {
	o.mu.Lock()
	pause, refusal := o.until.Sub(o.now()), o.err
	o.mu.Unlock()
	if pause > 0 && retry.Sleep(ctx, pause) != nil {
		return refusal
	}
	return nil
}

// delays reports whether a request would have to wait.
func (o *overload) delays() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now().Before(o.until)
}

// note takes the error of a request, and returns it. A pause that the control plane asks for comes
// before the drawn one; it is bounded, because no server may stop an agent for an hour.
func (o *overload) note(err error) error {
	refusal, ok := errors.AsType[*client.Error](err)
	if !ok || refusal.Status != http.StatusTooManyRequests && refusal.Status != http.StatusServiceUnavailable {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	pause := min(refusal.RetryAfter, longestWindow) + time.Duration(o.random()*float64(o.window))
	o.until, o.err = o.now().Add(pause), err
	o.window = min(2*o.window, longestWindow)
	return err
}

// over ends the delays after a request that succeeded.
func (o *overload) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.window, o.until, o.err = firstWindow, time.Time{}, nil
}
