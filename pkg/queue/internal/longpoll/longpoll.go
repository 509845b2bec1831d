// Package longpoll is the waiting half of Receive for drivers that live in one
// process: receivers of a named queue wait in line, a message that becomes
// visible wakes the first of them at once, and one timer for each line stands
// at the earliest moment at which a hidden message comes back. Nothing is
// polled.
//
// One message wakes one receiver. The rule that makes this safe is the baton:
// a receiver joins the line before it looks for a message, and whoever leaves
// the line, for whatever reason, wakes the next. So a wake-up that reaches a
// receiver which has just given up, or has found another message, is passed on
// rather than lost; the price is one look too many.
package longpoll

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
)

// Take takes one visible message; next is when it comes back unless it is
// deleted. When there is none it returns queue.ErrNoMessage, and next is when
// the earliest hidden message becomes visible, zero if there is none either.
type Take func(ctx context.Context) (m queue.Message, next time.Time, err error)

// Board holds the lines of all named queues. Safe for concurrent use. It keeps
// nothing, neither memory nor timer, for a queue on which nobody waits.
type Board struct {
	now func() time.Time

	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	receivers int       // inside Receive, waiting or looking
	waiting   list.List // of chan struct{}, the longest waiting first
	timer     *time.Timer
	at        time.Time // when timer fires; zero when it is not armed
}

// NewBoard returns an empty board. now must advance with the process's timers.
func NewBoard(now func() time.Time) *Board {
	return &Board{now: now, lines: map[string]*line{}}
}

// Receive calls take until it yields a message or fails, waiting between calls
// for a message to become visible, for at most wait. It looks once more at the
// end of the wait, which finds what another process has sent.
func (b *Board) Receive(ctx context.Context, name string, wait time.Duration, take Take) (queue.Message, error) {
	if err := ctx.Err(); err != nil {
		return queue.Message{}, err
	}
	if wait <= 0 {
		m, next, err := take(ctx)
		b.arm(name, next) // others may wait for what was taken before them
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

// Visible tells the board that a message of the queue becomes visible at at,
// which may be past. Call it after that is stored.
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

// rejoin puts a receiver that was woken back where it stood: if somebody was
// faster, it is still the one that has waited longest.
func (b *Board) rejoin(name string, ready chan struct{}) *list.Element {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines[name].waiting.PushFront(ready)
}

func (b *Board) leave(name string, place *list.Element) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[name]
	l.waiting.Remove(place) // does nothing when the receiver was woken meanwhile
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

// wakeFirst wakes the receiver that has waited longest. When all of them are
// looking already, each will look again after this: it joined before it looked
// and the one that was woken rejoins before it looks.
func (b *Board) wakeFirst(l *line) {
	if l == nil {
		return
	}
	if e := l.waiting.Front(); e != nil {
		l.waiting.Remove(e).(chan struct{}) <- struct{}{}
	}
}

// arm makes the line's timer fire at at, unless it fires earlier anyway.
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
	if l.at.Equal(at) { // else a timer that was replaced while it fired
		l.at = time.Time{}
	}
	b.wakeFirst(l)
}
