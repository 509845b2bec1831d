// Package queuebus is an event bus with one subscriber, which receives its events from a queue. It replaces
// EventBridge's rule and the rule's queue.
package queuebus

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/eventbus"
	"github.com/fairlead/fairlead/pkg/queue"
)

// Bus implements eventbus.Bus. Safe for concurrent use.
type Bus struct {
	Queue queue.Queue
	Name  string // the queue's name
	// Wanted reports whether the subscriber wants the event; nil: it wants all events.
	Wanted func(context.Context, events.Domain) (bool, error)
}

var _ eventbus.Bus = Bus{}

// Publish implements eventbus.Bus.
func (b Bus) Publish(ctx context.Context, list []events.Domain) []error {
	errs, failed := make([]error, len(list)), false
	for i, e := range list {
		if errs[i] = b.publish(ctx, e); errs[i] != nil {
			failed = true
		}
	}
	if !failed {
		return nil
	}
	return errs
}

func (b Bus) publish(ctx context.Context, e events.Domain) error {
	body, err := eventbus.Check(e)
	if err != nil {
		return err
	}
	if b.Wanted != nil {
		if wanted, err := b.Wanted(ctx, e); err != nil || !wanted {
			return err
		}
	}
	if err := b.Queue.Send(ctx, b.Name, body, 0); err != nil {
		return fmt.Errorf("publish %s of %s: %w", e.Type, e.Subject, err)
	}
	return nil
}
