// Package queue carries wake-ups. A message holds only a job's identifier, which the table also holds: a lost, repeated
// or reordered message changes nothing but latency.
//
// The semantics are those of an SQS standard queue: a received message is hidden for a while and becomes visible again
// unless it is deleted; delivery is at least once and in no order; a message that was received too often becomes a dead
// letter. Every driver passes queuetest.
package queue

import (
	"context"
	"errors"
	"time"
)

// Message is one delivery of a message. Receipt belongs to this delivery and is invalid after the next delivery. ID and
// Receipt are opaque. A dead letter has no receipt.
type Message struct {
	ID       string
	Body     []byte
	Receipt  string
	Receives int // number of deliveries including this one; at least 1
}

// The limits of SQS.
const (
	MaxBody  = 256 << 10        // bytes of a message's body
	MaxDelay = 15 * time.Minute // longest delay of a new message
	MaxWait  = 20 * time.Second // longest long poll
	MaxHide  = 12 * time.Hour   // longest visibility timeout
)

// Errors of a queue.
var (
	// ErrNoMessage reports that no message became visible while Receive waited.
	ErrNoMessage = errors.New("no message")
	// ErrReceipt reports that the receipt does not own the message: the message was deleted or delivered again, or the
	// receipt is of another queue.
	ErrReceipt = errors.New("receipt is no longer valid")
)

// Maker is a Queue that can create a named queue before its first use, for callers that may use queues but not create
// them.
type Maker interface {
	// Make creates the queue and sets the tags. An existing queue gets the same settings and tags. Repeating it is
	// harmless.
	Make(ctx context.Context, name string, tags map[string]string) error
}

// Ranked is a Queue that delivers its visible messages by their rank, the earliest first, and those of one rank in the order in which
// they were sent. The rank of a message of Send is the time of Send.
type Ranked interface {
	Queue

	// SendRanked is Send with a rank, which may be in the past or future. It does not delay the message.
	SendRanked(ctx context.Context, name string, body []byte, delay time.Duration, rank time.Time) error
}

// SendRanked sends a message with a rank if q is a Ranked, and otherwise without.
func SendRanked(ctx context.Context, q Queue, name string, body []byte, delay time.Duration, rank time.Time) error {
	if r, ok := q.(Ranked); ok {
		return r.SendRanked(ctx, name, body, delay, rank)
	}
	return q.Send(ctx, name, body, delay)
}

// Queue holds many named queues; the first use of a name creates its queue. Safe for concurrent use. It refuses
// arguments outside the limits with a *fairlead.Error (see CheckSend and its siblings). Every method returns the
// context's error once its context has ended.
type Queue interface {
	// Send adds a message that becomes visible after delay. When Send returns nil, the message survives the end of this
	// process, except with package memory.
	Send(ctx context.Context, name string, body []byte, delay time.Duration) error

	// Receive takes one visible message and hides it for the duration hide. No two receivers get the same delivery. If
	// no message is visible, Receive waits for a message, at most for the duration wait. It wakes at once if a message
	// is sent or becomes visible in the same process. It returns ErrNoMessage at the end of the wait.
	Receive(ctx context.Context, name string, hide, wait time.Duration) (Message, error)

	// Delete removes the message permanently, also if it is visible again but was not received yet. ErrReceipt means
	// that another delivery owns the message now. Deleting a deleted message is no error.
	Delete(ctx context.Context, name, receipt string) error

	// Extend hides the message for the duration hide from now on. With 0 the message is visible at once. It returns
	// ErrReceipt if the message was deleted, is owned by another delivery, or is already visible: a late owner must not
	// take the message from the next owner.
	Extend(ctx context.Context, name, receipt string, hide time.Duration) error

	// DeadLetters permanently removes and returns at most max of the queue's dead letters, which are messages that were
	// received too often. A message becomes a dead letter when its last allowed delivery no longer hides it. A driver
	// may return fewer than max at a time; an empty result means that none is left.
	DeadLetters(ctx context.Context, name string, max int) ([]Message, error)

	// Drop removes the named queue with its messages and dead letters. Its receipts then act like those of deleted
	// messages. Dropping a missing queue is no error.
	Drop(ctx context.Context, name string) error
}
