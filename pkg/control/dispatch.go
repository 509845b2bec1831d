package control

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/eventbus"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// maxSends is how many wake-ups a dispatcher sends at a time: a runner's queue
// answers in milliseconds, and a batch has at most as many as it has records.
const maxSends = 16

// Dispatcher turns the changes of the table into what others are told: domain
// events for subscribers, and once more the wake-ups of jobs that were queued,
// should whoever queued them have died before sending. It has no access to the
// table, because a change says it all. It reads the queue of nobody. Safe for
// concurrent use. All fields but Queue are required.
type Dispatcher struct {
	Queue  queue.Queue // nil: wake-ups are others' business
	Bus    eventbus.Bus
	Now    func() time.Time
	Logger *slog.Logger
}

// Record is one record of the table's stream.
type Record struct {
	ID     string // the stream's name for it
	At     time.Time
	Change engine.Change
	Err    error // why the change could not be read; nil: it was
}

// UnreadableEvent is the type of the event that tells of a record which could
// not be read. Its subject is the record, its data the item's key.
const UnreadableEvent = "fairlead.stream.unreadable"

// Dispatch tells others of the records, which are in the order of the stream,
// and returns the indexes of those that must come again, in order. Everything
// may be repeated: an event has its subject's version, and a wake-up that is
// spent finds nothing. The events of one subject are published one after the
// other, and none after one that failed.
//
// A record that cannot be read never gets better, and would hold up all that
// come after it; so an event tells of it, and it does not come again.
func (d *Dispatcher) Dispatch(ctx context.Context, records []Record) (again []int) {
	b := batch{d: d, failed: map[int]bool{}, events: map[string][]indexedEvent{}, wakes: map[string]wakeUp{}}
	for i, r := range records {
		b.add(i, r)
	}
	b.publish(ctx)
	b.send(ctx)
	for i := range b.failed {
		again = append(again, i)
	}
	slices.Sort(again)
	return again
}

// indexedEvent is the event of the record at an index.
type indexedEvent struct {
	index int
	event events.Domain
}

// wakeUp is that of a job which the record at an index queued.
type wakeUp struct {
	index int
	job   store.Job
}

type batch struct {
	d        *Dispatcher
	subjects []string                  // in the order in which they came
	events   map[string][]indexedEvent // by subject, in their order
	wakes    map[string]wakeUp         // by job: what the last record left wanting
	failed   map[int]bool
}

func (b *batch) add(i int, r Record) {
	known := r.Change.Key != engine.Key{}
	if known && !store.Announces(r.Change.Key) {
		return // whatever it holds
	}
	h, err := store.Happened{}, r.Err
	if err == nil {
		h, err = store.Happening(r.Change)
	}
	if err == nil && h.Event != nil {
		_, err = eventbus.Check(*h.Event) // what no bus takes would come again until it is given up
	}
	if err != nil {
		b.d.Logger.Error("a record of the table's stream cannot be read; an event tells of it", "record", r.ID, "key", r.Change.Key.String(), "error", err)
		b.tell(i, events.Domain{V: 1, Type: UnreadableEvent, Subject: cmp.Or(r.ID, "unknown"), Version: 1, Time: cmp.Or(r.At, b.d.Now().UTC()),
			Data: map[string]string{"key": r.Change.Key.String()}})
		return
	}
	if h.Event != nil {
		b.tell(i, *h.Event)
	}
	if h.Job == nil {
		return
	}
	id := string(h.Job.ID)
	switch {
	case h.Woken && b.d.Queue != nil:
		b.wakes[id] = wakeUp{i, *h.Job}
	case h.Job.State != job.Queued:
		delete(b.wakes, id) // it has been taken since, so somebody was woken
	}
}

func (b *batch) tell(i int, e events.Domain) {
	if b.events[e.Subject] == nil {
		b.subjects = append(b.subjects, e.Subject)
	}
	b.events[e.Subject] = append(b.events[e.Subject], indexedEvent{i, e})
}

// publish sends the first event of each subject, then the second of those
// whose first was taken, and so on.
func (b *batch) publish(ctx context.Context) {
	for len(b.subjects) > 0 {
		var list []events.Domain
		for _, s := range b.subjects {
			list = append(list, b.events[s][0].event)
		}
		errs := b.d.Bus.Publish(ctx, list)
		var left []string
		for n, s := range b.subjects {
			if errs != nil && errs[n] != nil {
				b.d.Logger.Warn("an event was not published; its record comes again", "event", list[n].Type, "subject", s, "version", list[n].Version, "error", errs[n])
				for _, t := range b.events[s] {
					b.failed[t.index] = true
				}
				continue
			}
			if b.events[s] = b.events[s][1:]; len(b.events[s]) > 0 {
				left = append(left, s)
			}
		}
		b.subjects = left
	}
}

// send sends the wake-ups of jobs that are still queued as far as the batch
// tells.
func (b *batch) send(ctx context.Context) {
	var wakes []wakeUp
	for _, w := range b.wakes {
		wakes = append(wakes, w)
	}
	errs := kernel.Concurrently(maxSends, wakes, func(w wakeUp) error { return kernel.SendWake(ctx, b.d.Queue, b.d.Now(), w.job) })
	for i, w := range wakes {
		if errs[i] != nil {
			b.d.Logger.Warn("a wake-up was not sent; its record comes again", "job", w.job.ID, "error", errs[i])
			b.failed[w.index] = true
		}
	}
}
