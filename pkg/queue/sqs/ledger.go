package sqs

import (
	"sync"
	"time"
)

// ledger knows what this process has received. SQS accepts an old receipt
// without a word ("the request succeeds, but the message might not be deleted",
// DeleteMessage), so where both deliveries were to this process, the ledger
// tells them apart. Deliveries to others it does not know. Safe for concurrent
// use.
type ledger struct {
	now func() time.Time

	mu       sync.Mutex
	messages map[string]entry // by the message's identifier
}

// entry is the latest delivery of a message to this process.
type entry struct {
	handle string
	until  time.Time // when its hiding ends
}

// maxLedger is how many messages the ledger knows before it forgets those that
// are hidden no longer. A runner holds a handful.
const maxLedger = 1024

// hidden notes that the delivery hides the message for hide from now on.
func (l *ledger) hidden(h handle, hide time.Duration) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.messages) >= maxLedger {
		for id, e := range l.messages {
			if !e.until.After(now) {
				delete(l.messages, id)
			}
		}
	}
	l.messages[h.message] = entry{h.value, now.Add(hide)}
}

// gone notes that the message is deleted.
func (l *ledger) gone(h handle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.messages, h.message)
}

// superseded reports whether this process has received the message again since
// that delivery.
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
