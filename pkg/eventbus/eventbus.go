// Package eventbus carries domain events to subscribers, after the change happened. Every driver passes eventbustest.
//
// Delivery is at least once and in no order. An event has its subject and the subject's version, by which a subscriber
// orders events and recognises a repeat.
package eventbus

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// MaxEvent is the largest event, in bytes of its JSON: EventBridge takes
// 256 KB in one request (PutEvents), less what an entry has besides.
const MaxEvent = 240 << 10

// Bus takes events. Safe for concurrent use.
type Bus interface {
	// Publish adds the events and returns nil when all were taken, and
	// otherwise as many errors as there are events, nil for those that were.
	// One that was taken survives the end of this process. One whose error is
	// not nil may have been taken, too. An event that Check refuses fails
	// alone. When the context has ended, what was not taken yet fails with its
	// error.
	Publish(ctx context.Context, list []events.Domain) []error
}

// Check returns the event's JSON, or why every driver refuses it: an error of
// KindInvalid or KindTooLarge.
func Check(e events.Domain) ([]byte, error) {
	if e.V != 1 || e.Type == "" || e.Subject == "" || e.Time.IsZero() {
		return nil, fairlead.Invalid(fairlead.CodeInvalidEvent, "an event has version 1, a type, a subject and a time; this is %q of %q", e.Type, e.Subject)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event %s of %s: %w", e.Type, e.Subject, err)
	}
	if len(b) > MaxEvent {
		return nil, &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeEventTooLarge,
			Message: fmt.Sprintf("event %s of %s has %d bytes; one holds %d", e.Type, e.Subject, len(b), MaxEvent)}
	}
	return b, nil
}
