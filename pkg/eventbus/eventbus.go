// Package eventbus delivers domain events to subscribers after the change was committed. Every driver passes
// eventbustest.
//
// Each event is delivered at least once, in any order. An event contains its subject and the subject's version. A
// subscriber uses the subject and the version to order events and to recognise a repeated event.
package eventbus

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// MaxEvent is the largest event, in bytes of its JSON. EventBridge accepts 256 KB in one request (PutEvents), which
// includes the other fields of an entry.
const MaxEvent = 240 << 10

// Bus accepts events for delivery. Safe for concurrent use.
type Bus interface {
	// Publish sends the events. It returns nil if the bus accepted all events. Otherwise it returns a list with one
	// error for each event; the error of an accepted event is nil. An accepted event survives the end of this process.
	// An event with an error may still have been accepted. An event that Check refuses does not affect the other
	// events. After the context ended, the remaining events fail with the context's error.
	Publish(ctx context.Context, list []events.Domain) []error
}

// Check returns the event's JSON. If the event is one that every driver must refuse, Check returns an error of
// KindInvalid or KindTooLarge.
func Check(e events.Domain) ([]byte, error) {
	if e.V != 1 || e.Type == "" || e.Subject == "" || e.Time.IsZero() {
		return nil, fairlead.Invalid(fairlead.CodeInvalidEvent, "event with type %q and subject %q is invalid: it needs version 1, a type, a subject and a time", e.Type, e.Subject)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event %s of %s: %w", e.Type, e.Subject, err)
	}
	if len(b) > MaxEvent {
		return nil, &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeEventTooLarge,
			Message: fmt.Sprintf("event %s of %s has %d bytes, more than the limit of %d", e.Type, e.Subject, len(b), MaxEvent)}
	}
	return b, nil
}
