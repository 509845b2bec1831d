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

// webhookQueue is where events wait for the webhooks that select them. Runners'
// queues have other names.
const webhookQueue = "webhooks"

// dispatchBatch is how many changes are dispatched at a time, as many as a
// function elsewhere gets.
const dispatchBatch = 100

// dispatchAgain is how long what was not dispatched waits for its next turn.
const dispatchAgain = time.Second

// senders is how many events are delivered at a time.
const senders = 4

// record says which changes are recorded: of what is announced, and only from
// the first webhook on, because it costs a fifth of a job's processor time. It
// sees each write before it is made, that of the first webhook too, so nothing
// that happens afterwards is missed.
func (s *Server) record(k engine.Key) bool {
	if store.IsWebhook(k) {
		s.webhooks.Store(true)
	}
	return s.webhooks.Load() && store.Announces(k)
}

// tell runs until ctx ends. It does what the table's stream, the event bus and
// two functions do elsewhere: changes become events, and events are delivered.
func (s *Server) tell(ctx context.Context, engine *storesqlite.Engine, d *control.Deliverer) {
	dispatcher := &control.Dispatcher{Bus: queuebus.Bus{Queue: s.control.Queue, Name: webhookQueue, Wanted: d.Wanted}, Now: time.Now, Logger: s.opts.Logger}
	s.done.Go(func() {
		for ctx.Err() == nil {
			again, err := dispatchChanges(ctx, engine, dispatcher)
			if err != nil && ctx.Err() == nil {
				s.opts.Logger.Warn("changes were not dispatched; they are again", "error", err)
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
		s.done.Go(func() { d.Work(ctx, s.control.Queue, webhookQueue) })
	}
}

// dispatchChanges dispatches what there is, in its order, and reports whether
// some of it must come again.
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
