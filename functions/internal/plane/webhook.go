package plane

import (
	"context"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbridge"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
	"github.com/fairlead/fairlead/pkg/seal/kms"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/webhook/https"
)

// Webhook wires the function that reads the queue of events for webhooks.
func Webhook(_ context.Context, p Process[config.Webhook]) (any, error) {
	c := p.Config
	return Deliveries(&control.Deliverer{
		Store: store.New(dynamo.New(p.AWS, c.Table)), Sealer: kms.New(p.AWS, time.Now, c.SealKey),
		Sender: https.New(https.Transport(), c.Timeout, p.Version, time.Now), IDs: fairlead.RandomIDs(time.Now), Now: time.Now, Logger: p.Logger,
	}, sqs.NewBacklog(p.AWS, c.Queue), p.Logger), nil
}

// Deliveries returns the handler of batches of the queue of events for webhooks. If the delivery of
// a message failed, the handler hides the message until its next attempt is due, and names it in
// the answer, so that SQS delivers it again. For this the event source must have
// ReportBatchItemFailures. A message that is not an event of the bus is never sent to an endpoint.
// It comes again until the queue moves it to the dead-letter queue.
func Deliveries(d *control.Deliverer, backlog *sqs.Backlog, logger *slog.Logger) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return func(ctx context.Context, batch events.SQSEvent) (events.SQSEventResponse, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		again := make([]bool, len(batch.Records))
		var g errgroup.Group // a batch has ten messages at most
		for i, m := range batch.Records {
			g.Go(func() error {
				again[i] = deliver(ctx, d, backlog, logger.With("message", m.MessageId), m)
				return nil
			})
		}
		_ = g.Wait() // the results are in again
		answer := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
		for i, m := range batch.Records {
			if again[i] {
				answer.BatchItemFailures = append(answer.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
			}
		}
		return answer, nil
	}
}

// deliver delivers a message, and reports whether the queue must deliver the
// message to the function again.
func deliver(ctx context.Context, d *control.Deliverer, backlog *sqs.Backlog, logger *slog.Logger, m events.SQSMessage) bool {
	e, err := eventbridge.Decode([]byte(m.Body))
	if err != nil {
		logger.Error("a message is no domain event; the queue moves it to the dead letters", "error", err)
		return true
	}
	pause, err := d.Deliver(ctx, e)
	if err != nil {
		logger.Warn("an event was not delivered; its message comes again", "event", e.Type, "subject", e.Subject, "error", err)
		return true
	}
	if pause == 0 {
		return false
	}
	if err := backlog.Hide(ctx, m.ReceiptHandle, pause); err != nil {
		logger.Warn("a message could not be hidden; it comes again after the queue's visibility timeout", "error", err)
	}
	return true
}
