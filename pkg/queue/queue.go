// Package queue carries wake-ups. A message holds a job's identifier and
// nothing that the table also holds: losing, repeating or reordering messages
// changes nothing but latency.
//
// The semantics are those of an SQS standard queue: a received message is
// hidden for a while and comes back unless it is deleted; delivery is at least
// once and in no order; a message received too often goes to dead letters.
// Every driver passes queuetest.
package queue

import (
	"context"
	"errors"
	"time"
)

// Message is one delivery of a message. Receipt belongs to this delivery: it
// is dead once the message has been delivered again. Both ID and Receipt are
// opaque; a dead letter has no receipt.
type Message struct {
	ID       string
	Body     []byte
	Receipt  string
	Receives int // how often it has been delivered, this time included; at least 1
}

// The limits, all SQS's.
const (
	MaxBody  = 256 << 10        // bytes of a message's body
	MaxDelay = 15 * time.Minute // longest delay of a new message
	MaxWait  = 20 * time.Second // longest long poll
	MaxHide  = 12 * time.Hour   // longest visibility timeout
)

// Errors of a queue.
var (
	// ErrNoMessage says that none became visible while Receive waited.
	ErrNoMessage = errors.New("no message")
	// ErrReceipt says that the receipt gives no right to the message: it was
	// deleted, or delivered again since, or the receipt is none of this queue's.
	ErrReceipt = errors.New("receipt is no longer valid")
)

// Maker is a Queue that can make a named queue before its first use, for those
// who may use queues and not make them.
type Maker interface {
	// Make makes the queue and puts the tags on it; one that is there is brought
	// to the same form. Repeating it is harmless.
	Make(ctx context.Context, name string, tags map[string]string) error
}

// Queue holds many named queues; a name is made by its first use. Safe for
// concurrent use. Arguments outside the limits are refused with a
// *fairlead.Error (see CheckSend and its siblings); every method returns the
// context's error once its context has ended.
type Queue interface {
	// Send adds a message that becomes visible after delay. When Send returns
	// nil, the message survives the end of this process.
	Send(ctx context.Context, name string, body []byte, delay time.Duration) error

	// Receive takes one visible message and hides it for hide; no two receivers
	// get the same delivery. When there is none it waits up to wait for one,
	// wakes as soon as one is sent or becomes visible within the same process,
	// and returns ErrNoMessage at the end of the wait.
	Receive(ctx context.Context, name string, hide, wait time.Duration) (Message, error)

	// Delete removes the message for good, also when it has become visible
	// again but nobody has received it yet. ErrReceipt means another delivery
	// owns it now; a message that is already gone is no error.
	Delete(ctx context.Context, name, receipt string) error

	// Extend hides the message for hide from now on; 0 shows it at once. It is
	// ErrReceipt for a message that is gone, that another delivery owns, or that
	// is visible already: a late owner must not take it from the next one.
	Extend(ctx context.Context, name, receipt string, hide time.Duration) error

	// DeadLetters takes up to max messages that were received too often off
	// the queue's dead letters, for good. A message is one as soon as its last
	// allowed delivery's hiding has run out. A driver may return fewer than max
	// at a time; none at all means there is none.
	DeadLetters(ctx context.Context, name string, max int) ([]Message, error)

	// Drop removes the named queue with all it holds, dead letters included;
	// its receipts are those of messages that are gone. One that does not exist
	// is no error.
	Drop(ctx context.Context, name string) error
}
