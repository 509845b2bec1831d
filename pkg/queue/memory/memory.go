// Package memory is a queue in the memory of one process, for messages that their sender can send again. A control plane on one machine
// has its wake-ups in it: after a start it sends those of all queued jobs again (control.Control.WakeQueued), because the table has them.
//
// The visible messages of a queue are a heap by rank, and the hidden ones a heap by the time at which they become visible. Each
// operation takes a time that grows with the logarithm of the queue's length.
package memory

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/internal/longpoll"
)

// DefaultMaxReceives is the number of deliveries after which a wake-up becomes a dead letter. A wake-up is deleted when its job is
// claimed, before the job runs. So after five deliveries without a delete, the runner cannot claim at all.
const DefaultMaxReceives = 5

// Queue is a queue.Ranked. Safe for concurrent use.
type Queue struct {
	now         func() time.Time
	maxReceives int
	board       *longpoll.Board

	mu     sync.Mutex
	last   int // id of the last message
	queues map[string]*line
	names  map[int]string // by message id, the name of the message's queue
}

var _ queue.Ranked = (*Queue)(nil)

// New returns an empty queue. A message becomes a dead letter after maxReceives deliveries, at least 1. The clock of the function now
// must advance with the process's timers. time.Now does this, also in a synctest bubble.
func New(now func() time.Time, maxReceives int) *Queue {
	if maxReceives < 1 {
		panic("queue/memory: maxReceives must be at least 1")
	}
	return &Queue{now: now, maxReceives: maxReceives, board: longpoll.NewBoard(now), queues: map[string]*line{}, names: map[int]string{}}
}

// line is one named queue.
type line struct {
	messages map[int]*message // by id
	visible  ordered
	hidden   ordered
	dead     []*message // in the order in which they became dead letters
}

type message struct {
	id       int
	body     []byte
	rank     time.Time
	shown    time.Time // when the message becomes visible, or became it
	receives int
	in       *ordered // the heap that has the message; nil: it is a dead letter
	at       int      // index in the heap
}

func (m *message) delivery() queue.Message {
	return queue.Message{ID: strconv.Itoa(m.id), Body: bytes.Clone(m.body), Receives: m.receives}
}

// ordered is a heap of messages.
type ordered struct {
	before func(a, b *message) bool
	all    []*message
}

func (o *ordered) Len() int           { return len(o.all) }
func (o *ordered) Less(i, j int) bool { return o.before(o.all[i], o.all[j]) }

func (o *ordered) Swap(i, j int) {
	o.all[i], o.all[j] = o.all[j], o.all[i]
	o.all[i].at, o.all[j].at = i, j
}

// Push implements heap.Interface.
func (o *ordered) Push(x any) {
	m := x.(*message)
	m.in, m.at = o, len(o.all)
	o.all = append(o.all, m)
}

// Pop implements heap.Interface.
func (o *ordered) Pop() any {
	m := o.all[len(o.all)-1]
	o.all[len(o.all)-1] = nil
	o.all = o.all[:len(o.all)-1]
	m.in = nil
	return m
}

func byRank(a, b *message) bool { return cmp.Or(a.rank.Compare(b.rank), cmp.Compare(a.id, b.id)) < 0 }
func byTime(a, b *message) bool { return cmp.Or(a.shown.Compare(b.shown), cmp.Compare(a.id, b.id)) < 0 }

// line returns the queue with the name, and creates it if create is set; else nil.
func (q *Queue) line(name string, create bool) *line {
	l := q.queues[name]
	if l == nil && create {
		l = &line{messages: map[int]*message{}, visible: ordered{before: byRank}, hidden: ordered{before: byTime}}
		q.queues[name] = l
	}
	return l
}

// show moves the messages that are visible now to the visible ones, or to the dead letters.
func (l *line) show(now time.Time, maxReceives int) {
	for l.hidden.Len() > 0 && !l.hidden.all[0].shown.After(now) {
		m := heap.Pop(&l.hidden).(*message)
		if m.receives >= maxReceives {
			l.dead = append(l.dead, m)
		} else {
			heap.Push(&l.visible, m)
		}
	}
}

// hide hides the message, which is in a heap or in none, until at.
func (l *line) hide(m *message, at time.Time) {
	if m.in != nil {
		heap.Remove(m.in, m.at)
	}
	m.shown = at
	heap.Push(&l.hidden, m)
}

// Send implements queue.Queue.
func (q *Queue) Send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	return q.SendRanked(ctx, name, body, delay, q.now())
}

// SendRanked implements queue.Ranked.
func (q *Queue) SendRanked(ctx context.Context, name string, body []byte, delay time.Duration, rank time.Time) error {
	if err := cmp.Or(queue.CheckSend(name, body, delay), ctx.Err()); err != nil {
		return err
	}
	at := q.now().Add(delay)
	q.mu.Lock()
	q.last++
	m := &message{id: q.last, body: bytes.Clone(body), rank: rank}
	l := q.line(name, true)
	l.messages[m.id], q.names[m.id] = m, name
	l.hide(m, at)
	q.mu.Unlock()
	q.board.Visible(name, at)
	return nil
}

// Receive implements queue.Queue.
func (q *Queue) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	if err := queue.CheckReceive(name, hide, wait); err != nil {
		return queue.Message{}, err
	}
	return q.board.Receive(ctx, name, wait, func(context.Context) (queue.Message, time.Time, error) {
		return q.take(name, hide)
	})
}

// take is a longpoll.Take.
func (q *Queue) take(name string, hide time.Duration) (queue.Message, time.Time, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(name, false)
	if l == nil {
		return queue.Message{}, time.Time{}, queue.ErrNoMessage
	}
	now := q.now()
	l.show(now, q.maxReceives)
	if l.visible.Len() == 0 {
		var next time.Time
		if l.hidden.Len() > 0 {
			next = l.hidden.all[0].shown
		}
		return queue.Message{}, next, queue.ErrNoMessage
	}
	m := l.visible.all[0]
	m.receives++
	l.hide(m, now.Add(hide))
	d := m.delivery()
	d.Receipt = d.ID + "." + strconv.Itoa(d.Receives)
	return d, m.shown, nil
}

// Delete implements queue.Queue.
func (q *Queue) Delete(ctx context.Context, name, receipt string) error {
	if err := cmp.Or(queue.CheckName(name), ctx.Err()); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	m, err := q.owned(name, receipt)
	if m != nil {
		q.remove(name, m)
	}
	return err
}

// Extend implements queue.Queue.
func (q *Queue) Extend(ctx context.Context, name, receipt string, hide time.Duration) error {
	if err := cmp.Or(queue.CheckExtend(name, hide), ctx.Err()); err != nil {
		return err
	}
	now := q.now()
	at := now.Add(hide)
	q.mu.Lock()
	m, err := q.owned(name, receipt)
	if err == nil && (m == nil || !m.shown.After(now)) {
		err = queue.ErrReceipt
	}
	if err == nil {
		q.line(name, false).hide(m, at)
	}
	q.mu.Unlock()
	if err != nil {
		return err
	}
	q.board.Visible(name, at)
	return nil
}

// owned returns the message whose latest delivery has the receipt. If the message was deleted, it returns nil. For any other receipt it
// returns queue.ErrReceipt.
func (q *Queue) owned(name, receipt string) (*message, error) {
	left, right, _ := strings.Cut(receipt, ".")
	id, err1 := strconv.Atoi(left)
	delivery, err2 := strconv.Atoi(right)
	if err1 != nil || err2 != nil {
		return nil, queue.ErrReceipt
	}
	owner, found := q.names[id]
	if !found {
		return nil, nil
	}
	if owner != name {
		return nil, queue.ErrReceipt
	}
	if m := q.queues[name].messages[id]; m.receives == delivery {
		return m, nil
	}
	return nil, queue.ErrReceipt
}

// remove removes a message. A queue without messages uses no memory.
func (q *Queue) remove(name string, m *message) {
	l := q.queues[name]
	if m.in != nil {
		heap.Remove(m.in, m.at)
	} else {
		l.dead = slices.DeleteFunc(l.dead, func(d *message) bool { return d == m })
	}
	delete(l.messages, m.id)
	delete(q.names, m.id)
	if len(l.messages) == 0 {
		delete(q.queues, name)
	}
}

// DeadLetters implements queue.Queue.
func (q *Queue) DeadLetters(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	if err := cmp.Or(queue.CheckDeadLetters(name, limit), ctx.Err()); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(name, false)
	if l == nil {
		return nil, nil
	}
	l.show(q.now(), q.maxReceives)
	var dead []queue.Message
	for _, m := range slices.Clone(l.dead[:min(limit, len(l.dead))]) {
		dead = append(dead, m.delivery())
		q.remove(name, m)
	}
	return dead, nil
}

// Drop implements queue.Queue.
func (q *Queue) Drop(ctx context.Context, name string) error {
	if err := cmp.Or(queue.CheckName(name), ctx.Err()); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.queues[name]; l != nil {
		for id := range l.messages {
			delete(q.names, id)
		}
		delete(q.queues, name)
	}
	return nil
}
