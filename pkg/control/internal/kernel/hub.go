package kernel

import (
	"context"
	"sync"
	"time"
)

// hub notifies waiters in this process that a job or a deployment has changed. A
// notification is only a hint: a waiter then reads the table, and it also reads the
// table periodically without a hint.
type hub struct {
	mu      sync.Mutex
	waiters map[string]map[chan struct{}]struct{}
}

func newHub() *hub { return &hub{waiters: map[string]map[chan struct{}]struct{}{}} }

// publish wakes every waiter for subject.
func (h *hub) publish(subject string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.waiters[subject] {
		select {
		case ch <- struct{}{}:
		default: // the channel already holds a hint that the waiter has not taken yet
		}
	}
}

// subscribe returns a channel that receives a value after each later change of subject,
// and a function that ends the subscription.
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

// Wait calls the function look at once, after each hint about subject, and after each
// interval Recheck. It returns when look reports done or fails, or after the duration
// wait.
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
