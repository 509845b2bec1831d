package local

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/eventbus/queuebus"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	storesqlite "github.com/fairlead/fairlead/pkg/store/sqlite"
)

// webhookQueue is the queue of events for webhooks.
const webhookQueue = "webhooks"

// dispatchBatch is the number of changes that are dispatched together. It is the same
// number as for the function on AWS.
const dispatchBatch = 100

// dispatchAgain is the pause before failed changes are dispatched again.
const dispatchAgain = time.Second

// senders is the number of events that are delivered concurrently.
const senders = 4

// record reports whether the engine must record a change of the item k. The engine
// records only items that have events, and only after the first webhook exists, because
// recording costs a fifth of a job's processor time. The engine calls record before
// each write, also before the write of the first webhook. So no later change is missed.
func (s *Server) record(k engine.Key) bool {
	if store.IsWebhook(k) {
		s.webhooks.Store(true)
	}
	return s.webhooks.Load() && store.Announces(k)
}

// announce turns changes into events and delivers them to webhooks, until ctx ends. On
// AWS, the table's stream, the event bus and two functions do this.
func (s *Server) announce(ctx context.Context, engine *storesqlite.Engine, d *control.Deliverer) {
	dispatcher := &control.Dispatcher{Bus: queuebus.Bus{Queue: s.deliveries, Name: webhookQueue, Wanted: d.Wanted}, Now: time.Now, Logger: s.opts.Logger}
	s.done.Go(func() {
		for ctx.Err() == nil {
			again, err := dispatchChanges(ctx, engine, dispatcher)
			if err != nil && ctx.Err() == nil {
				s.opts.Logger.Warn("cannot dispatch changes; trying again", "error", err)
			}
			var retry <-chan time.Time
			if again || err != nil {
				retry = time.After(dispatchAgain)
			}
			select {
			case <-engine.Changed():
			case <-retry:
			case <-ctx.Done():
			}
		}
	})
	for range senders {
		s.done.Go(func() { d.Work(ctx, s.deliveries, webhookQueue) })
	}
}

// dispatchChanges dispatches all recorded changes in order. It reports whether some
// changes failed and must be dispatched again.
func dispatchChanges(ctx context.Context, engine *storesqlite.Engine, d *control.Dispatcher) (again bool, err error) {
	for {
		changes, err := engine.Changes(ctx, dispatchBatch)
		if err != nil || len(changes) == 0 {
			return false, err
		}
		records := make([]control.Record, len(changes))
		for i, c := range changes {
			records[i] = control.Record{At: time.Now(), Change: c.Change}
		}
		failed := d.Dispatch(ctx, records)
		dispatched := len(changes)
		if len(failed) > 0 {
			dispatched = failed[0]
		}
		if dispatched > 0 {
			if err := engine.Forget(ctx, changes[dispatched-1].Sequence); err != nil {
				return false, err
			}
		}
		if len(failed) > 0 {
			return true, nil
		}
	}
}
