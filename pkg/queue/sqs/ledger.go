package sqs

import (
	"sync"
	"time"
)

// ledger records the messages that this process has received. SQS accepts an old receipt without an error ("the request
// succeeds, but the message might not be deleted", DeleteMessage). If this process received both deliveries, the ledger
// tells them apart. It has no record of deliveries to other processes. Safe for concurrent use.
type ledger struct {
	now func() time.Time

	mu       sync.Mutex
	messages map[string]entry // by the message's identifier
}

// entry is the latest delivery of a message to this process.
type entry struct {
	handle   string
	receives int       // as SQS counts them
	until    time.Time // when its hiding ends
}

// maxLedger is the number of messages above which the ledger drops those that are no longer hidden. A runner holds a
// handful.
const maxLedger = 1024

// delivered records that delivery number receives hides the message for hide from now on. A later delivery may already
// be recorded, because answers can overtake each other.
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

// extended records that the delivery hides the message for hide from now on, unless a later delivery is known: a
// released message may reach its next receiver before the answer to the release arrives.
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

// superseded reports whether this process has received the message again since that delivery.
func (l *ledger) superseded(h handle) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.messages[h.message]
	return known && e.handle != h.value
}

// over reports whether the delivery's hiding is known to have ended.
func (l *ledger) over(h handle) bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.messages[h.message]
	return known && (e.handle != h.value || !e.until.After(now))
}
