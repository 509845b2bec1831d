package control

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/control/internal/execution"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/eventbus"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// maxSends is how many wake-ups a dispatcher sends concurrently. A queue answers within
// milliseconds, and a batch has at most one wake-up for each record.
const maxSends = 16

// Dispatcher converts changes of the table to domain events for subscribers. It also
// sends the wake-ups of queued jobs and writes the cancel markers of canceled jobs again,
// because the process that queued or canceled a job may have died after its commit. It does not read the table, because each change
// contains all facts, and it receives from no queue. Safe for concurrent use. All
// fields but Queue and CancelMarks are required.
type Dispatcher struct {
	Queue queue.Queue // nil: this dispatcher sends no wake-ups
	// CancelMarks are the cancel markers; nil: this dispatcher writes none.
	CancelMarks cancelmark.Marks
	Bus         eventbus.Bus
	Now         func() time.Time
	Logger      *slog.Logger
}

// Record is one record of the table's stream.
type Record struct {
	ID     string // the record's identifier in the stream
	At     time.Time
	Change engine.Change
	Err    error // why the change could not be decoded; nil: it was decoded
}

// UnreadableEvent is the type of the event that reports a record which could not be
// decoded. The event's subject is the record. Its data holds the item's key.
const UnreadableEvent = "fairlead.stream.unreadable"

// Dispatch publishes the events and sends the wake-ups of records, which are in the
// order of the stream. It returns the sorted indexes of the records that the stream
// must deliver again. Repeating a record is safe: an event has the version of its
// subject, and a repeated wake-up finds no queued job. The events of one subject are
// published in order. After an event fails, no later event of its subject is published.
//
// If the stream delivered a record that cannot be decoded again and again, the record
// would block all later records. So Dispatch publishes an event about the record, and
// does not return its index.
func (d *Dispatcher) Dispatch(ctx context.Context, records []Record) (again []int) {
	b := batch{d: d, failed: map[int]bool{}, events: map[string][]indexedEvent{}, wakes: map[string]wakeUp{}, marks: map[string]cancelmark.Attempt{}}
	for i, r := range records {
		b.add(i, r)
	}
	b.publish(ctx)
	b.send(ctx)
	b.mark(ctx)
	for i := range b.failed {
		again = append(again, i)
	}
	slices.Sort(again)
	return again
}

// indexedEvent is the event of the record at index.
type indexedEvent struct {
	index int
	event events.Domain
}

// wakeUp is the wake-up of a job that the record at index queued.
type wakeUp struct {
	index int
	job   store.Job
}

type batch struct {
	d        *Dispatcher
	subjects []string                      // in the order of their first record
	events   map[string][]indexedEvent     // by subject, in order
	wakes    map[string]wakeUp             // by job: jobs that are queued after the last record
	marks    map[string]cancelmark.Attempt // by job: jobs that are being canceled after the last record
	failed   map[int]bool
}

func (b *batch) add(i int, r Record) {
	known := r.Change.Key != engine.Key{}
	if known && !store.Announces(r.Change.Key) {
		return // a record of this kind has no event
	}
	h, err := store.Happened{}, r.Err
	if err == nil {
		h, err = store.Happening(r.Change)
	}
	if err == nil && h.Event != nil {
		_, err = eventbus.Check(*h.Event) // without the check, an event that no bus accepts would be retried until its record expires
	}
	if err != nil {
		b.d.Logger.Error("a record of the table's stream cannot be decoded; an event reports it", "record", r.ID, "key", r.Change.Key.String(), "error", err)
		b.report(i, events.Domain{V: 1, Type: UnreadableEvent, Subject: cmp.Or(r.ID, "unknown"), Version: 1, Time: cmp.Or(r.At, b.d.Now().UTC()),
			Data: map[string]string{"key": r.Change.Key.String()}})
		return
	}
	if h.Event != nil {
		b.report(i, *h.Event)
	}
	if h.Job == nil {
		return
	}
	id := string(h.Job.ID)
	if a, ok := execution.MarkOf(*h.Job); !ok {
		delete(b.marks, id) // the job has ended meanwhile
	} else if h.Event != nil {
		b.marks[id] = a
	}
	switch {
	case h.Woken && b.d.Queue != nil:
		b.wakes[id] = wakeUp{i, *h.Job}
	case h.Job.State != job.Queued:
		delete(b.wakes, id) // a later record shows that the job is no longer queued, so it needs no wake-up
	}
}

// report adds the event of the record at index i.
func (b *batch) report(i int, e events.Domain) {
	if b.events[e.Subject] == nil {
		b.subjects = append(b.subjects, e.Subject)
	}
	b.events[e.Subject] = append(b.events[e.Subject], indexedEvent{i, e})
}

// publish sends the first event of each subject. After an event of a subject was
// accepted, it sends the next event of this subject.
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
				b.d.Logger.Warn("an event was not published; its record is delivered again", "event", list[n].Type, "subject", s, "version", list[n].Version, "error", errs[n])
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

// send sends the wake-ups of the jobs that are still queued after the last record of
// the batch.
func (b *batch) send(ctx context.Context) {
	var wakes []wakeUp
	for _, w := range b.wakes {
		wakes = append(wakes, w)
	}
	errs := kernel.Concurrently(maxSends, wakes, func(w wakeUp) error { return kernel.SendWake(ctx, b.d.Queue, b.d.Now(), w.job) })
	for i, w := range wakes {
		if errs[i] != nil {
			b.d.Logger.Warn("a wake-up was not sent; its record is delivered again", "job", w.job.ID, "error", errs[i])
			b.failed[w.index] = true
		}
	}
}

// mark writes the cancel markers of the jobs that are still being canceled after the last
// record of the batch. A failure does not repeat the record: before the repetition arrives,
// the step has renewed its lease.
func (b *batch) mark(ctx context.Context) {
	if b.d.CancelMarks == nil {
		return
	}
	attempts := slices.Collect(maps.Values(b.marks))
	errs := kernel.Concurrently(maxSends, attempts, func(a cancelmark.Attempt) error { return b.d.CancelMarks.Put(ctx, a) })
	for i, a := range attempts {
		if errs[i] != nil {
			b.d.Logger.Warn("a cancel marker was not written; the step learns of the cancelation at its next renewal", "job", a.Job, "error", errs[i])
		}
	}
}
