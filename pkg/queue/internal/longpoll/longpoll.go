// Package longpoll implements the waiting of Receive for drivers inside one process. Receivers of a named queue wait in
// line. A message that becomes visible wakes the first of them at once. One timer per line fires when the next hidden
// message becomes visible. Nothing polls.
//
// One message wakes one receiver. To lose no wake-up, a receiver joins the line before it looks for a message, and
// wakes the next receiver whenever it leaves the line. So a wake-up that reaches a receiver which has just given up, or
// has found another message, is passed on. The cost is an extra look.
package longpoll

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
)

// Take takes one visible message. The result next is the time when the message becomes visible again, unless it is
// deleted. Without a visible message it returns queue.ErrNoMessage, and next is when the earliest hidden message
// becomes visible, or zero if there is none.
type Take func(ctx context.Context) (m queue.Message, next time.Time, err error)

// Board holds the lines of all named queues. Safe for concurrent use. A queue without waiting receivers uses no memory
// and no timer.
type Board struct {
	now func() time.Time

	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	receivers int       // number of receivers inside Receive, waiting or looking
	waiting   list.List // of chan struct{}, the longest waiting first
	timer     *time.Timer
	at        time.Time // when timer fires; zero when it is not armed
}

// NewBoard returns an empty board. now must advance with the process's timers.
func NewBoard(now func() time.Time) *Board {
	return &Board{now: now, lines: map[string]*line{}}
}

// Receive calls take until it returns a message or fails. Between calls it waits for a message to become visible, at
// most for wait in total. It looks again at the end of the wait, to find messages that other processes sent.
func (b *Board) Receive(ctx context.Context, name string, wait time.Duration, take Take) (queue.Message, error) {
	if err := ctx.Err(); err != nil {
		return queue.Message{}, err
	}
	if wait <= 0 {
		m, next, err := take(ctx)
		b.arm(name, next) // others may wait for older messages
		return m, err
	}
	end := time.NewTimer(wait)
	defer end.Stop()

	ready := make(chan struct{}, 1)
	place := b.join(name, ready)
	defer func() { b.leave(name, place) }()
	for last := false; ; {
		m, next, err := take(ctx)
		b.arm(name, next)
		if last || !errors.Is(err, queue.ErrNoMessage) {
			return m, err
		}
		select {
		case <-ready:
			place = b.rejoin(name, ready)
		case <-end.C:
			last = true
		case <-ctx.Done():
			return queue.Message{}, ctx.Err()
		}
	}
}

// Visible informs the board that a message of the queue becomes visible at at, which may be
// in the past. Call it after the message is stored.
func (b *Board) Visible(name string, at time.Time) {
	if !at.After(b.now()) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wakeFirst(b.lines[name])
		return
	}
	b.arm(name, at)
}

func (b *Board) join(name string, ready chan struct{}) *list.Element {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[name]
	if l == nil {
		l = &line{}
		b.lines[name] = l
	}
	l.receivers++
	return l.waiting.PushBack(ready)
}

// rejoin returns a woken receiver to the front of the line: if another receiver took the message, this receiver has
// still waited longest.
func (b *Board) rejoin(name string, ready chan struct{}) *list.Element {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines[name].waiting.PushFront(ready)
}

func (b *Board) leave(name string, place *list.Element) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[name]
	l.waiting.Remove(place) // no effect if the receiver was woken meanwhile
	l.receivers--
	if l.receivers > 0 {
		b.wakeFirst(l)
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	delete(b.lines, name)
}

// wakeFirst wakes the receiver that has waited longest. If no receiver waits, all receivers are looking, and each will
// look again. The reason is that a receiver joins before it looks, and a woken receiver rejoins before it looks.
func (b *Board) wakeFirst(l *line) {
	if l == nil {
		return
	}
	if e := l.waiting.Front(); e != nil {
		l.waiting.Remove(e).(chan struct{}) <- struct{}{}
	}
}

// arm makes the line's timer fire at the time at, unless the timer already fires earlier.
func (b *Board) arm(name string, at time.Time) {
	if at.IsZero() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[name]
	if l == nil || !l.at.IsZero() && !at.Before(l.at) {
		return
	}
	l.at = at
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timer = time.AfterFunc(at.Sub(b.now()), func() { b.fire(l, at) })
}

func (b *Board) fire(l *line, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.at.Equal(at) { // otherwise the timer was replaced while it fired
		l.at = time.Time{}
	}
	b.wakeFirst(l)
}
