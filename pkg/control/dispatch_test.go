package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbustest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// stream is an engine that keeps a record of each change, like the stream of a DynamoDB
// table. It commits one transaction at a time.
type stream struct {
	engine.Engine
	mu      sync.Mutex
	records []control.Record
}

func (s *stream) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := func() []*engine.Item {
		items := make([]*engine.Item, len(writes))
		for i, w := range writes {
			if it, err := s.Get(ctx, w.Item.Key); err == nil {
				items[i] = &it
			}
		}
		return items
	}
	before := read()
	if err := s.Engine.Commit(ctx, token, writes...); err != nil {
		return err
	}
	for i, now := range read() {
		if before[i] == nil && now == nil || before[i] != nil && now != nil && before[i].Version == now.Version {
			continue // the write changed nothing: it was a check, or the commit was repeated
		}
		s.records = append(s.records, control.Record{ID: fmt.Sprintf("record-%d", len(s.records)), At: time.Now(),
			Change: engine.Change{Key: writes[i].Item.Key, Old: before[i], New: now}})
	}
	return nil
}

// since returns the records, without the first n records.
func (s *stream) since(n int) []control.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.records[n:])
}

// lossy is a queue that loses each message that the control plane sends. Before each
// receive it calls dispatch, and dispatch sends the wake-ups of the stream.
type lossy struct {
	queue.Queue
	dispatch func()
}

func (l lossy) Send(context.Context, string, []byte, time.Duration) error {
	return errors.New("the send was lost")
}

func (l lossy) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	l.dispatch()
	return l.Queue.Receive(ctx, name, hide, wait)
}

// The main story succeeds if all wake-ups that the control plane and its sweep send are
// lost, and only the wake-ups of the stream arrive.
func TestStreamAloneSendsAllWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stream{Engine: enginetest.Memory()}
		p := newPlane(t, e)
		bus := eventbustest.Memory()
		d := &control.Dispatcher{Queue: p.Queue, Bus: bus, Now: time.Now, Logger: p.Logger}
		done := 0
		p.Queue = lossy{p.Queue, func() {
			list := e.since(done)
			done += len(list)
			if again := d.Dispatch(t.Context(), list); again != nil {
				t.Errorf("records %v must be delivered again, want none", again)
			}
		}}
		mainStory(t, p)
		list := e.since(done)
		if again := d.Dispatch(t.Context(), list); again != nil {
			t.Errorf("records %v must be delivered again, want none", again)
		}
		accountForEvents(t, e.since(0), bus.Taken(), true)
	})
}

// accountForEvents checks that the bus got an event for each new state of each job and
// deployment in records. The event has the version of the record, and the events are in
// order. If once is true, no event may be repeated.
func accountForEvents(t interface {
	Helper()
	Errorf(string, ...any)
}, records []control.Record, got []events.Domain, once bool) {
	t.Helper()
	want := map[string][]string{}
	last := map[string]string{}
	for _, r := range records {
		h, err := store.Happening(engine.Change{Key: r.Change.Key, New: r.Change.New}) // without Old, each version has an event; the next lines ignore versions with an unchanged state
		if err != nil {
			t.Errorf("record %s: %v", r.ID, err)
		}
		if h.Event == nil || last[h.Event.Subject] == h.Event.Type {
			continue
		}
		last[h.Event.Subject] = h.Event.Type
		want[h.Event.Subject] = append(want[h.Event.Subject], fmt.Sprintf("%d %s", h.Event.Version, h.Event.Type))
	}
	reported := map[string][]string{}
	for _, e := range got {
		s := fmt.Sprintf("%d %s", e.Version, e.Type)
		if once || !slices.Contains(reported[e.Subject], s) {
			reported[e.Subject] = append(reported[e.Subject], s)
		}
	}
	if once && len(want) == 0 || len(reported) != len(want) {
		t.Errorf("%d subjects are reported, want %d", len(reported), len(want))
	}
	for subject, w := range want {
		if !slices.Equal(reported[subject], w) {
			t.Errorf("%s: reported\n%s\nwant\n%s", subject, strings.Join(reported[subject], "\n"), strings.Join(w, "\n"))
		}
	}
}

// Sends fail at random, and the stream is divided into batches of random size. After a
// failure, the test sends the stream again from the first failed record, as Lambda does.
// Then all events are published in order, and each queued job has a wake-up.
func TestDispatchReportsAllDespiteFailures(t *testing.T) {
	var records []control.Record
	synctest.Test(t, func(t *testing.T) {
		e := &stream{Engine: enginetest.Memory()}
		mainStory(t, newPlane(t, e))
		records = e.since(0)
	})
	rapid.Check(t, func(t *rapid.T) {
		bus, q := eventbustest.Memory(), &failing{Queue: memory.New(time.Now, 5)}
		d := &control.Dispatcher{Queue: q, Bus: bus, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
		var mu sync.Mutex
		bad := rapid.SliceOfN(rapid.Bool(), 1, 40).Draw(t, "failures")
		n := 0
		fail := func() error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%50 < len(bad) && bad[n%50] { // of 50 calls, at least 10 calls succeed
				return errors.New("throttled")
			}
			return nil
		}
		bus.FailWith(func(events.Domain) error { return fail() })
		q.fail = fail
		end := rapid.IntRange(1, len(records)).Draw(t, "end")
		for from := 0; from < end; {
			to := min(end, from+rapid.IntRange(1, 100).Draw(t, "batch"))
			again := d.Dispatch(context.Background(), records[from:to])
			if !slices.IsSorted(again) {
				t.Errorf("again %v is not in order", again)
			}
			if len(again) == 0 {
				from = to
			} else {
				from += again[0]
			}
		}
		accountForEvents(t, records[:end], bus.Taken(), false)
		waiting := map[fairlead.JobID]bool{}
		for _, r := range records[:end] {
			if h, err := store.Happening(r.Change); err == nil && h.Job != nil {
				waiting[h.Job.ID] = h.Job.State == job.Queued
			}
		}
		for id, queued := range waiting {
			if queued && !q.sent[id] {
				t.Errorf("job %s is queued, but has no wake-up", id)
			}
		}
	})
}

// failing is a queue. If fail returns an error, Send returns this error and sends nothing.
type failing struct {
	queue.Queue
	fail func() error
	mu   sync.Mutex
	sent map[fairlead.JobID]bool
}

func (f *failing) Send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	if err := f.fail(); err != nil {
		return err
	}
	w, err := events.DecodeWake(body)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent == nil {
		f.sent = map[fairlead.JobID]bool{}
	}
	f.sent[w.Job] = true
	return f.Queue.Send(ctx, name, body, delay)
}

func TestDispatchSendsEventsAndWakeUps(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &stream{Engine: enginetest.Memory()}
	s := store.New(e)
	commits := 0
	put := func(j store.Job, version int64) control.Record {
		var tx store.Tx
		tx.PutJob(store.Stored[store.Job]{V: j, Version: version})
		commits++
		if err := s.Commit(t.Context(), fmt.Sprintf("commit-%d", commits), &tx); err != nil {
			t.Fatal(err)
		}
		all := e.since(0)
		return all[len(all)-1]
	}
	move := func(j store.Job, k job.Kind, after time.Duration) store.Job {
		next, err := job.Apply(j.Job, job.Event{Kind: k, At: at.Add(after), Epoch: j.Lease.Epoch, Session: "ses_1", Step: "step-1"})
		if err != nil {
			t.Fatal(err)
		}
		j.Job = next
		return j
	}
	j1 := store.Job{Job: job.New("job_1", job.OpPlan, at)}
	j1.Runner = "run_1"
	c1 := move(j1, job.Claim, time.Second)
	r1 := move(c1, job.Start, 2*time.Second)
	renewed := move(r1, job.Renew, 3*time.Second)
	died := move(renewed, job.Die, 4*time.Second) // the job is queued again, and can be claimed one second later
	queued, claimed, running := put(j1, 0), put(c1, 1), put(r1, 2)
	renewal, requeued := put(renewed, 3), put(died, 4)
	resent := put(died, 5) // the sweep writes the record again when it sends the wake-up again
	noImage := control.Record{ID: "record-x", At: at, Err: errors.New("an attribute is missing")}
	noJSON := queued
	noJSON.Change.New = &engine.Item{Key: queued.Change.Key, Version: 9, Body: []byte("{")}
	newOnly := renewal
	newOnly.Change.Old = nil
	expired := queued
	expired.Change.Old, expired.Change.New = queued.Change.New, nil
	stranger := control.Record{ID: "record-y", Change: engine.Change{Key: engine.Key{Partition: "TOKEN#x", Sort: "TOKEN"},
		New: &engine.Item{Body: []byte("no JSON of ours")}}}
	log := control.Record{ID: "record-z", Change: engine.Change{Key: engine.Key{Partition: "LOG#job_1", Sort: "fence"}}, Err: errors.New("there is no version")}

	for _, c := range []struct {
		name    string
		records []control.Record
		fails   string // the bus refuses events of this type; "wake": the queue refuses wake-ups
		events  string
		wakes   string
		again   []int
	}{
		{name: "a new job is reported, and its runner woken", records: []control.Record{queued}, events: "1 queued", wakes: "job_1+0s"},
		{name: "a job that was claimed later has no wake-up", records: []control.Record{queued, claimed, running}, events: "1 queued, 2 claimed, 3 running"},
		{name: "a renewal has no event", records: []control.Record{renewal}},
		{name: "a renewal without the old item repeats the event", records: []control.Record{newOnly}, events: "4 running"},
		{name: "the wake-up of a retry arrives after its pause", records: []control.Record{requeued}, events: "5 queued", wakes: "job_1+1s"},
		{name: "a job that the sweep wakes has no second wake-up", records: []control.Record{resent}},
		{name: "a repeated batch is reported twice", records: []control.Record{queued, queued}, events: "1 queued, 1 queued", wakes: "job_1+0s"},
		{name: "a failed event holds back the later events of its subject", records: []control.Record{queued, claimed, renewal, running}, fails: "claimed", events: "1 queued", again: []int{1, 3}},
		{name: "the record of a failed wake-up is delivered again", records: []control.Record{claimed, requeued}, fails: "wake", events: "2 claimed, 5 queued", again: []int{1}},
		{name: "an unreadable record is reported and blocks no other", records: []control.Record{noImage, queued}, events: "1 unreadable, 1 queued", wakes: "job_1+0s"},
		{name: "an unreadable item is reported", records: []control.Record{noJSON}, events: "1 unreadable"},
		{name: "an unreadable record without its event is delivered again", records: []control.Record{queued, noImage}, fails: "unreadable", events: "1 queued", wakes: "job_1+0s", again: []int{1}},
		{name: "an expired record has no event", records: []control.Record{expired}},
		{name: "items of other kinds are ignored", records: []control.Record{stranger, log}},
		{name: "no records", records: nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			bus, q := eventbustest.Memory(), &sendLog{fails: c.fails == "wake", now: at.Add(4 * time.Second)}
			bus.FailWith(func(e events.Domain) error {
				if c.fails != "" && strings.HasSuffix(e.Type, "."+c.fails) {
					return errors.New("refused")
				}
				return nil
			})
			d := &control.Dispatcher{Queue: q, Bus: bus, Now: func() time.Time { return q.now }, Logger: slog.New(slog.DiscardHandler)}
			again := d.Dispatch(t.Context(), c.records)
			var got []string
			for _, e := range bus.Taken() {
				got = append(got, fmt.Sprintf("%d %s", e.Version, e.Type[strings.LastIndexByte(e.Type, '.')+1:]))
			}
			if s := strings.Join(got, ", "); s != c.events {
				t.Errorf("events %s, want %s", s, c.events)
			}
			if s := strings.Join(q.sent, ", "); s != c.wakes {
				t.Errorf("wake-ups %s, want %s", s, c.wakes)
			}
			if !slices.Equal(again, c.again) {
				t.Errorf("again %v, want %v", again, c.again)
			}
		})
	}
}

// sendLog is a queue that records the sent messages and does not deliver them.
type sendLog struct {
	queue.Queue
	fails bool
	now   time.Time
	mu    sync.Mutex
	sent  []string
}

func (r *sendLog) Send(_ context.Context, _ string, body []byte, delay time.Duration) error {
	if r.fails {
		return errors.New("throttled")
	}
	w, err := events.DecodeWake(body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, fmt.Sprintf("%s+%s", w.Job, delay))
	return err
}
