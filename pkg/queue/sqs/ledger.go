package sqs

import (
	"sync"
	"time"
)

// ledger records the messages that this process has received. SQS accepts an old receipt without an error ("the request
// succeeds, but the message might not be deleted", DeleteMessage). If this process received the old and the new
// delivery, the ledger distinguishes their receipts. It has no record of deliveries to other processes. Safe for
// concurrent use.
type ledger struct {
	now func() time.Time

	mu       sync.Mutex
	messages map[string]entry // by the message's identifier
}

// entry is the latest delivery of a message to this process.
type entry struct {
	handle   string
	receives int       // number of deliveries, as SQS counts them
	until    time.Time // when the visibility timeout ends
}

// If the ledger has more than maxLedger messages, it drops the messages whose visibility timeout has passed. A runner
// holds only a few messages.
const maxLedger = 1024

// delivered records the delivery with the number receives, which hides the message for the duration hide from now on. A
// later delivery may already be recorded, because responses can arrive in another order.
func (l *ledger) delivered(h handle, receives int, hide time.Duration) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.messages[h.message].receives > receives {
		return
	}
	if len(l.messages) >= maxLedger {
		for id, e := range l.messages {
			if !e.until.After(now) {
				delete(l.messages, id)
			}
		}
	}
	l.messages[h.message] = entry{h.value, receives, now.Add(hide)}
}

// extended records that the delivery hides the message for the duration hide from now on, unless a later delivery is
// known: a released message may reach its next receiver before the answer to the release arrives.
func (l *ledger) extended(h handle, hide time.Duration) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, known := l.messages[h.message]; known && e.handle == h.value {
		e.until = now.Add(hide)
		l.messages[h.message] = e
	}
}

// gone records that the message was deleted.
func (l *ledger) gone(h handle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.messages[h.message].handle == h.value {
		delete(l.messages, h.message)
	}
}

// superseded reports whether this process has received the message again since the delivery of the handle.
func (l *ledger) superseded(h handle) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.messages[h.message]
	return known && e.handle != h.value
}

// over reports whether this process knows that the delivery no longer hides the message.
func (l *ledger) over(h handle) bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.messages[h.message]
	return known && (e.handle != h.value || !e.until.After(now))
}
