package kernel

import (
	"context"
	"sync"
	"time"
)

// hub tells waiters in this process that a job or a deployment has changed. It
// is a hint: a waiter reads the table again, and also without a hint from time
// to time.
type hub struct {
	mu      sync.Mutex
	waiters map[string]map[chan struct{}]struct{}
}

func newHub() *hub { return &hub{waiters: map[string]map[chan struct{}]struct{}{}} }

// publish wakes whoever waits for subject.
func (h *hub) publish(subject string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.waiters[subject] {
		select {
		case ch <- struct{}{}:
		default: // it has been told already and not looked yet
		}
	}
}

// subscribe returns a channel that gets a value after each change of subject
// from now on, and a function that ends the subscription.
func (h *hub) subscribe(subject string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	if h.waiters[subject] == nil {
		h.waiters[subject] = map[chan struct{}]struct{}{}
	}
	h.waiters[subject][ch] = struct{}{}
	h.mu.Unlock()
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiters[subject], ch)
		if len(h.waiters[subject]) == 0 {
			delete(h.waiters, subject)
		}
	}
}

// Wait calls look at once, after each hint about subject, and every recheck,
// until look says that it is done, fails, or wait is over.
func (k *Kernel) Wait(ctx context.Context, subject string, wait time.Duration, look func(context.Context) (done bool, err error)) error {
	hint, end := k.hub.subscribe(subject)
	defer end()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	tick := time.NewTicker(k.Recheck)
	defer tick.Stop()
	for {
		done, err := look(ctx)
		if done || err != nil {
			return err
		}
		if wait <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return nil
		case <-hint:
		case <-tick.C:
		}
	}
}
