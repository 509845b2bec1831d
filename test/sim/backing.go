package sim

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// maxReceives is the number of deliveries of a message before it is a dead letter, as in the
// embedded queue.
const maxReceives = 5

// backing is the data of the control plane, which survives every server.
type backing struct {
	w *world
	keys
	table  *enginetest.MemoryEngine
	engine *enginetest.FaultyEngine // wraps table
	queue  queue.Queue
	log    *journal
	blobs  blob.Store
	ids    map[string]int

	one    sync.Mutex       // held during a call of engine, so that next applies to that call only
	next   enginetest.Fault // the fault of the next call of engine
	outage bool             // the disk of the table is full: no call succeeds
	clock  time.Duration    // time by which the servers' clock is ahead
}

func newBacking(w *world) *backing {
	seed := sha256.Sum256(binary.BigEndian.AppendUint64(nil, w.opt.Seed))
	b := &backing{w: w, keys: keys{sealKey: seal.GenerateKey(), signKey: ed25519.NewKeyFromSeed(seed[:]), tokenKey: seed[:]},
		queue: memory.New(time.Now, maxReceives), log: &journal{inner: joblogtest.Memory()}, blobs: blobtest.Memory(), ids: map[string]int{}}
	b.table = enginetest.Memory()
	b.engine = enginetest.Faulty(b.table, func(enginetest.Call) enginetest.Fault { return b.next })
	return b
}

// serverTime returns the time of the servers' clock.
func (w *world) serverTime() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.backing.clock)
}

// id is the ID source of all servers. It numbers the identifiers of each prefix.
func (w *world) id(prefix string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[prefix]++
	return fmt.Sprintf("%s_%026d", prefix, w.ids[prefix])
}

var errDisk = &fairlead.Error{Kind: fairlead.KindUnavailable, Code: "store-unavailable", Message: "the disk failed", Err: enginetest.ErrInjected}

// The bounds of the time of one call, in one direction.
const (
	fastCall = 20 * time.Microsecond
	slowCall = 2 * time.Millisecond
	stuckLow = 200 * time.Millisecond // a slow disk
	stuckMax = 20 * time.Second
)

// enter is called at the start of each call from a server to a model (a crossing, see the
// package comment). It takes time, more if the disk is slow, and returns the name of the place. A sweep
// makes calls about several runners at one moment, in any order. So the name then also has what the
// call is about: the partition, the queue, or the job of a wake-up. A sweep calls the log and the blobs one after the other.
func (p *process) enter(ctx context.Context, call, about string) string {
	here, _ := ctx.Value(siteKey{}).(site)
	if here.sweep {
		call += " " + about
	}
	place := p.w.place(here.name, call)
	p.cross(place, fastCall, slowCall)
	if p.w.fault(place+" disk", "slow-disk") != "" {
		p.cross(place+" disk", stuckLow, stuckMax)
	}
	return place
}

// write executes a write of a server. The server may die before or after it.
func (p *process) write(place string, do func()) {
	when := p.w.fault(place+" process", "server-dies-before-write", "server-dies-after-write", "power-lost-at-write")
	switch when {
	case "server-dies-before-write":
		p.kill()
	case "power-lost-at-write":
		p.w.powerFails(place)
	}
	p.check(place)
	do()
	if when != "" {
		p.kill()
	}
	p.cross(place+" answer", fastCall, slowCall)
}

// simEngine is one server's access to the table.
type simEngine struct {
	p *process
	b *backing
}

func (e *simEngine) with(f enginetest.Fault, call func()) {
	e.b.one.Lock()
	defer e.b.one.Unlock()
	e.b.next = f
	if e.b.outage {
		e.b.next = enginetest.NotStored
	}
	call()
}

// Get implements engine.Engine.
func (e *simEngine) Get(ctx context.Context, k engine.Key) (item engine.Item, err error) {
	place := e.p.enter(ctx, "get", k.Partition)
	f := enginetest.NoFault
	if e.p.w.fault(place, "get-failed") != "" {
		f = enginetest.NotStored
	}
	e.with(f, func() { item, err = e.b.engine.Get(ctx, k) })
	return item, err
}

// Query implements engine.Engine.
func (e *simEngine) Query(ctx context.Context, q engine.Query) (page engine.Page, err error) {
	place := e.p.enter(ctx, "query", q.Partition)
	f := enginetest.NoFault
	switch e.p.w.fault(place, "query-failed", "query-stale") {
	case "query-failed":
		f = enginetest.NotStored
	case "query-stale":
		f = enginetest.Stale
	}
	e.with(f, func() { page, err = e.b.engine.Query(ctx, q) })
	return page, err
}

// Commit implements engine.Engine.
func (e *simEngine) Commit(ctx context.Context, token string, writes ...engine.Write) (err error) {
	place := e.p.enter(ctx, "commit", writes[0].Item.Key.Partition)
	f := map[string]enginetest.Fault{"commit-not-stored": enginetest.NotStored, "commit-stored": enginetest.Stored,
		"commit-conflict": enginetest.Conflict}[e.p.w.fault(place, "commit-not-stored", "commit-stored", "commit-conflict")]
	e.p.write(place, func() {
		e.with(f, func() {
			// The commit may be a repetition of a stored commit. The function committed
			// checks only items whose version has changed.
			err = e.b.engine.Commit(ctx, token, writes...)
			e.b.w.committed(ctx, e.b.table, token, writes)
		})
	})
	e.p.w.note("%s: %s %v", place, describe(writes), err)
	return err
}

// simQueue is one server's access to the queue.
type simQueue struct {
	p *process
	b *backing
}

// Send implements queue.Queue.
func (q *simQueue) Send(ctx context.Context, name string, body []byte, delay time.Duration) (err error) {
	wake, _ := events.DecodeWake(body)
	place := q.p.enter(ctx, "send", string(wake.Job))
	fault := q.p.w.fault(place, "send-failed", "send-lost", "send-repeated", "send-delayed")
	q.p.w.sent(body)
	q.p.write(place, func() {
		switch fault {
		case "send-failed":
			err = errDisk
			return
		case "send-lost":
			return
		case "send-repeated":
			err = q.b.queue.Send(ctx, name, body, delay+q.p.w.between("again "+place, time.Millisecond, time.Minute))
		case "send-delayed":
			delay += q.p.w.between("delay "+place, 100*time.Millisecond, 2*time.Minute)
		}
		err = errors.Join(err, q.b.queue.Send(ctx, name, body, delay))
	})
	return err
}

// Receive implements queue.Queue.
func (q *simQueue) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	place := q.p.enter(ctx, "receive", name)
	fault := q.p.w.fault(place, "receive-failed", "receive-lost")
	if fault == "receive-failed" {
		return queue.Message{}, errDisk
	}
	m, err := q.b.queue.Receive(ctx, name, hide, wait)
	if err == nil {
		q.p.w.delivered(name, m.Receipt)
	}
	q.p.cross(place+" answer", fastCall, slowCall)
	if err == nil && fault == "receive-lost" {
		return queue.Message{}, errDisk
	}
	return m, err
}

// Delete implements queue.Queue.
func (q *simQueue) Delete(ctx context.Context, name, receipt string) (err error) {
	place := q.p.enter(ctx, "delete", name)
	q.p.w.deletes(name, receipt)
	if q.p.w.fault(place, "delete-failed") != "" {
		return errDisk
	}
	q.p.write(place, func() { err = q.b.queue.Delete(ctx, name, receipt) })
	return err
}

// Extend implements queue.Queue.
func (q *simQueue) Extend(ctx context.Context, name, receipt string, hide time.Duration) error {
	q.p.enter(ctx, "extend", name)
	return q.b.queue.Extend(ctx, name, receipt, hide)
}

// DeadLetters implements queue.Queue.
func (q *simQueue) DeadLetters(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	q.p.enter(ctx, "dead letters", name)
	return q.b.queue.DeadLetters(ctx, name, limit)
}

// Drop implements queue.Queue.
func (q *simQueue) Drop(ctx context.Context, name string) error {
	q.p.enter(ctx, "drop", name)
	return q.b.queue.Drop(ctx, name)
}

// losePower drops the data that need not be durable: the wake-ups, and the newest bytes of logs
// that have not ended.
func (b *backing) losePower(lost float64) {
	b.one.Lock()
	defer b.one.Unlock()
	b.queue = memory.New(time.Now, maxReceives)
	b.log.lose(lost)
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	clear(b.w.receipts)
}

// journal is a job log that can lose its newest changes. It keeps a list of all changes. After a
// loss it makes the remaining changes again on a new log.
type journal struct {
	mu     sync.Mutex
	inner  joblog.Log
	all    []func(joblog.Log) error
	synced int // number of durable changes
}

func (j *journal) do(sync bool, change func(joblog.Log) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := change(j.inner)
	if err == nil {
		j.all = append(j.all, change)
		if sync {
			j.synced = len(j.all)
		}
	}
	return err
}

func (j *journal) lose(share float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	keep := len(j.all) - int(share*float64(len(j.all)-j.synced+1))
	j.all = j.all[:max(j.synced, keep)]
	j.inner = joblogtest.Memory()
	for _, change := range j.all {
		change(j.inner) // succeeds, as it did before
	}
}

func (j *journal) log() joblog.Log {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.inner
}

// simLog is one server's access to the job log.
type simLog struct {
	p *process
	b *backing
}

// change executes a write that may fail, with or without its effect.
func (l *simLog) change(ctx context.Context, call string, sync bool, do func(joblog.Log) error) (err error) {
	place := l.p.enter(ctx, call, "")
	fault := l.p.w.fault(place, "log-failed", "log-stored")
	l.p.write(place, func() {
		if fault == "log-failed" {
			err = errDisk
			return
		}
		if err = ctx.Err(); err == nil {
			err = l.b.log.do(sync, do)
		}
		if fault == "log-stored" && err == nil {
			err = errDisk
		}
	})
	return err
}

// Open implements joblog.Log.
func (l *simLog) Open(ctx context.Context, s joblog.Stream) error {
	return l.change(ctx, "open log", false, func(log joblog.Log) error { return log.Open(context.Background(), s) })
}

// Append implements joblog.Log.
func (l *simLog) Append(ctx context.Context, s joblog.Stream, offset int64, data []byte) (next int64, err error) {
	data = bytes.Clone(data) // the journal keeps the bytes
	err = l.change(ctx, "append", false, func(log joblog.Log) error {
		before, _ := log.Read(context.Background(), s, 0, 1)
		next, err = log.Append(context.Background(), s, offset, data)
		if err == nil && next > before.Info.Size {
			l.b.w.fenced(ctx, "the log of "+s.String()+" grew")
		}
		return err
	})
	return next, err
}

// End implements joblog.Log.
func (l *simLog) End(ctx context.Context, s joblog.Stream, truncated bool) error {
	return l.change(ctx, "end log", true, func(log joblog.Log) error { return log.End(context.Background(), s, truncated) })
}

// Cut implements joblog.Log.
func (l *simLog) Cut(ctx context.Context, s joblog.Stream) error {
	return l.change(ctx, "cut log", false, func(log joblog.Log) error { return log.Cut(context.Background(), s) })
}

// Spend implements joblog.Log.
func (l *simLog) Spend(ctx context.Context, runner string, n int64, b joblog.Budget, now time.Time) (left bool, err error) {
	err = l.change(ctx, "spend log budget", false, func(log joblog.Log) error {
		left, err = log.Spend(context.Background(), runner, n, b, now)
		return err
	})
	return left, err
}

// Read implements joblog.Log.
func (l *simLog) Read(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	l.p.enter(ctx, "read log", "")
	return l.b.log.log().Read(ctx, s, offset, limit)
}

// Follow implements joblog.Log.
func (l *simLog) Follow(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	l.p.enter(ctx, "follow log", "")
	return l.b.log.log().Follow(ctx, s, offset, limit)
}

// Followed implements joblog.Log.
func (l *simLog) Followed(ctx context.Context, s joblog.Stream) (bool, error) {
	l.p.enter(ctx, "followed log", "")
	return l.b.log.log().Followed(ctx, s)
}

// Streams implements joblog.Log.
func (l *simLog) Streams(ctx context.Context, job string) ([]joblog.Info, error) {
	l.p.enter(ctx, "streams", "")
	return l.b.log.log().Streams(ctx, job)
}

// Drop implements joblog.Log.
func (l *simLog) Drop(ctx context.Context, job string) error {
	return l.change(ctx, "drop log", false, func(log joblog.Log) error { return log.Drop(context.Background(), job) })
}

// simBlobs is one server's access to the blobs.
type simBlobs struct {
	p *process
	b *backing
}

func (s *simBlobs) change(ctx context.Context, call string, do func() error) (err error) {
	place := s.p.enter(ctx, call, "")
	fault := s.p.w.fault(place, "blob-failed", "blob-stored")
	s.p.write(place, func() {
		if fault == "blob-failed" {
			err = errDisk
			return
		}
		if err = do(); err == nil && fault == "blob-stored" {
			err = errDisk
		}
	})
	return err
}

// Put implements blob.Store.
func (s *simBlobs) Put(ctx context.Context, key string, data []byte) error {
	return s.change(ctx, "put blob", func() error {
		if strings.HasPrefix(key, "plan/") {
			s.b.w.fenced(ctx, key+" was written")
		}
		return s.b.blobs.Put(ctx, key, data)
	})
}

// Get implements blob.Store.
func (s *simBlobs) Get(ctx context.Context, key string) ([]byte, error) {
	place := s.p.enter(ctx, "get blob", "")
	if s.p.w.fault(place, "blob-failed") != "" {
		return nil, errDisk
	}
	return s.b.blobs.Get(ctx, key)
}

// Delete implements blob.Store.
func (s *simBlobs) Delete(ctx context.Context, key string) error {
	return s.change(ctx, "delete blob", func() error { return s.b.blobs.Delete(ctx, key) })
}

// List implements blob.Store.
func (s *simBlobs) List(ctx context.Context, prefix string) ([]string, error) {
	s.p.enter(ctx, "list blobs", "")
	return s.b.blobs.List(ctx, prefix)
}
