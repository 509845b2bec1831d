package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
)

// Sweep wires the function that repairs what was lost. It signs and mints
// nothing.
func Sweep(ctx context.Context, p Process[config.Sweep]) (any, error) {
	c := p.Config
	plane, err := Control(ctx, p.AWS, Resources{Table: c.Table, LogTable: c.LogTable, Blobs: c.Blobs, QueuePrefix: c.QueuePrefix, SealKey: c.SealKey}, p.Logger)
	if err != nil {
		return nil, err
	}
	return Collects(Sweeps(plane.Sweep, sqs.NewBacklog(p.AWS, c.Queue), c.Delays, p.Logger), plane.CollectOldBlobs, p.Logger), nil
}

// collectAt is the minute of the day, in UTC, whose scheduled sweep is followed by
// a collection of blobs.
const collectAt = "03:17"

// Collects returns the sweep's handler with what follows it once a day: the blobs
// that nothing names are removed, in the time that the sweep has left. What is
// not come to, or fails, is another day's: the sweep is not repeated for it.
func Collects(sweeps func(context.Context, json.RawMessage) (control.Swept, error), collect func(context.Context) error,
	logger *slog.Logger) func(context.Context, json.RawMessage) (control.Swept, error) {
	return func(ctx context.Context, event json.RawMessage) (control.Swept, error) {
		swept, err := sweeps(ctx, event)
		if err != nil || !scheduled(event) || !ofMinute(event, collectAt) {
			return swept, err
		}
		ctx, cancel := withMargin(ctx)
		defer cancel()
		if err := collect(ctx); err != nil {
			logger.Warn("not all blobs were looked at; another day's sweep goes on", "error", err)
		}
		return swept, nil
	}
}

// ofMinute reports whether the event is of this minute of a day. The time is the
// event's own: one that comes late, or again, says the same.
func ofMinute(event json.RawMessage, minute string) bool {
	var e struct {
		Time time.Time `json:"time"`
	}
	return json.Unmarshal(event, &e) == nil && e.Time.UTC().Format("15:04") == minute
}

// sendWithin bounds how long the sweep waits for what is sent before it.
const sendWithin = 5 * time.Second

// Sweeps returns the handler of the sweep's schedule and of the queue behind it.
// Whatever starts it, it sweeps. Started by the schedule, whose finest period is
// a minute, it also sends the queue a message for each of the delays; these start
// it again, and it sends none then, so that no loop can come of it. A message
// that is late, or comes twice, is one more sweep. The error tells what was not
// sent as well as what was not swept.
func Sweeps(sweep func(context.Context) (control.Swept, error), queue *sqs.Backlog, delays []time.Duration, logger *slog.Logger) func(context.Context, json.RawMessage) (control.Swept, error) {
	return func(ctx context.Context, event json.RawMessage) (control.Swept, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		var sent error
		if scheduled(event) {
			// It sends first: the delays count from here, and a sweep that takes long
			// would move all of them and leave a gap; one that does not end would take
			// them with it. The price is that SQS, when it is away, holds this one
			// sweep up for as long as sendWithin.
			if sent = send(ctx, queue, delays); sent != nil {
				logger.Error("the next sweep is that of the next minute", "error", sent)
			}
		}
		swept, err := sweep(ctx)
		logger.Info("swept", "looked", swept.Looked, "woken", swept.Woken, "expired", swept.Expired, "timed_out", swept.TimedOut, "failed", swept.Failed,
			"stuck", swept.Stuck, "turned", swept.Turned, "dead_letters", swept.Letters)
		if err != nil {
			err = fmt.Errorf("sweep: %w", err)
		}
		return swept, errors.Join(sent, err)
	}
}

// scheduled reports whether the event is one of EventBridge's schedules.
func scheduled(event json.RawMessage) bool {
	var e struct {
		Source string `json:"source"`
	}
	return json.Unmarshal(event, &e) == nil && e.Source == "aws.events"
}

func send(ctx context.Context, queue *sqs.Backlog, delays []time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	return queue.Send(ctx, "sweep", delays...) // SQS takes no empty message; nobody reads it
}
