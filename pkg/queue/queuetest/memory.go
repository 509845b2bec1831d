package queuetest

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/internal/longpoll"
)

// Memory returns an empty queue for tests and simulations. The queue exists only in this
// process and passes the suite. A message becomes a dead letter after maxReceives
// deliveries. The clock of the function now must advance with the process's timers.
// time.Now does this, also in a synctest bubble.
func Memory(now func() time.Time, maxReceives int) queue.Queue {
	if maxReceives < 1 {
		panic("queuetest: maxReceives must be at least 1")
	}
	return &memory{
		now: now, maxReceives: maxReceives, board: longpoll.NewBoard(now),
		queues: map[string][]*message{}, names: map[int]string{},
	}
}

type memory struct {
	now         func() time.Time
	maxReceives int
	board       *longpoll.Board

	mu     sync.Mutex
	last   int                   // id of the last message
	queues map[string][]*message // by queue name, the messages in the order of Send
	names  map[int]string        // by message id, the name of the message's queue
}

type message struct {
	id       int
	body     []byte
	visible  time.Time
	receives int
}

func (m *message) delivery() queue.Message {
	return queue.Message{ID: strconv.Itoa(m.id), Body: bytes.Clone(m.body), Receives: m.receives}
}

func (q *memory) Send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	if err := cmp.Or(queue.CheckSend(name, body, delay), ctx.Err()); err != nil {
		return err
	}
	at := q.now().Add(delay)
	q.mu.Lock()
	q.last++
	q.queues[name] = append(q.queues[name], &message{id: q.last, body: bytes.Clone(body), visible: at})
	q.names[q.last] = name
	q.mu.Unlock()
	q.board.Visible(name, at)
	return nil
}

func (q *memory) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	if err := queue.CheckReceive(name, hide, wait); err != nil {
		return queue.Message{}, err
	}
	return q.board.Receive(ctx, name, wait, func(context.Context) (queue.Message, time.Time, error) {
		return q.take(name, hide)
	})
}

func (q *memory) take(name string, hide time.Duration) (queue.Message, time.Time, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	var first *message
	for _, m := range q.queues[name] {
		if !q.dead(m, now) && (first == nil || m.visible.Before(first.visible)) {
			first = m
		}
	}
	if first == nil {
		return queue.Message{}, time.Time{}, queue.ErrNoMessage
	}
	if first.visible.After(now) {
		return queue.Message{}, first.visible, queue.ErrNoMessage
	}
	first.receives++
	first.visible = now.Add(hide)
	d := first.delivery()
	d.Receipt = d.ID + "." + strconv.Itoa(d.Receives)
	return d, first.visible, nil
}

// dead reports whether the message's last allowed delivery has ended.
func (q *memory) dead(m *message, now time.Time) bool {
	return m.receives >= q.maxReceives && !m.visible.After(now)
}

func (q *memory) Delete(ctx context.Context, name, receipt string) error {
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

func (q *memory) Extend(ctx context.Context, name, receipt string, hide time.Duration) error {
	if err := cmp.Or(queue.CheckExtend(name, hide), ctx.Err()); err != nil {
		return err
	}
	now := q.now()
	at := now.Add(hide)
	q.mu.Lock()
	m, err := q.owned(name, receipt)
	if err == nil && (m == nil || !m.visible.After(now)) {
		err = queue.ErrReceipt
	}
	if err == nil {
		m.visible = at
	}
	q.mu.Unlock()
	if err != nil {
		return err
	}
	q.board.Visible(name, at)
	return nil
}

// owned returns the message whose latest delivery has the receipt. If the message was
// deleted, it returns nil. For any other receipt it returns queue.ErrReceipt.
func (q *memory) owned(name, receipt string) (*message, error) {
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
	i := slices.IndexFunc(q.queues[name], func(m *message) bool { return m.id == id })
	if m := q.queues[name][i]; m.receives == delivery {
		return m, nil
	}
	return nil, queue.ErrReceipt
}

func (q *memory) remove(name string, gone *message) {
	q.queues[name] = slices.DeleteFunc(q.queues[name], func(m *message) bool { return m == gone })
	delete(q.names, gone.id)
}

func (q *memory) DeadLetters(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	if err := cmp.Or(queue.CheckDeadLetters(name, limit), ctx.Err()); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	var dead []queue.Message
	for _, m := range slices.Clone(q.queues[name]) {
		if len(dead) < limit && q.dead(m, now) {
			dead = append(dead, m.delivery())
			q.remove(name, m)
		}
	}
	return dead, nil
}

func (q *memory) Drop(ctx context.Context, name string) error {
	if err := cmp.Or(queue.CheckName(name), ctx.Err()); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.queues[name] {
		delete(q.names, m.id)
	}
	delete(q.queues, name)
	return nil
}
