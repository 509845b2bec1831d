// Package queuebus is an event bus of one subscriber, whose events wait in a
// queue: what EventBridge's rule and its queue are elsewhere.
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
	Name  string // of the queue
	// Wanted reports whether the subscriber wants the event; nil: it wants all.
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
