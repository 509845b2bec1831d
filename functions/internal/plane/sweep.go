package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
)

// Sweep wires the function that repairs lost work. It neither signs nor mints.
func Sweep(ctx context.Context, p Process[config.Sweep]) (any, error) {
	c := p.Config
	plane, err := Control(ctx, p.AWS, Resources{Table: c.Table, LogTable: c.LogTable, Blobs: c.Blobs, QueuePrefix: c.QueuePrefix, CancelTable: c.CancelTable, SealKey: c.SealKey}, p.Logger)
	if err != nil {
		return nil, err
	}
	return Collects(Sweeps(Moves(plane.Sweep, plane.MoveTrusts, p.Logger), sqs.NewBacklog(p.AWS, c.Queue), c.Delays, p.Logger), plane.CollectOldBlobs, p.Logger), nil
}

// Moves returns the sweep, which first makes service accounts of the rules that an earlier release kept with runners. Once move has
// succeeded, a process does not call it again. A failure does not stop the sweep: the rules are accepted as before, and the next
// sweep continues.
func Moves(sweep func(context.Context) (control.Swept, error), move func(context.Context) (int, error), logger *slog.Logger) func(context.Context) (control.Swept, error) {
	var done atomic.Bool
	return func(ctx context.Context) (control.Swept, error) {
		if !done.Load() {
			if _, err := move(ctx); err != nil {
				logger.Warn("cannot make service accounts of the rules of all runners; the next sweep continues", "error", err)
			} else {
				done.Store(true)
			}
		}
		return sweep(ctx)
	}
}

// collectAt is the minute of the day, in UTC, in which the scheduled sweep also collects blobs.
const collectAt = "03:17"

// Collects returns the sweep's handler and adds a collection once a day: collect removes
// unreferenced blobs in the time that remains after the sweep. If collect fails or runs out of
// time, the collection of the next day continues the work. The sweep is not repeated.
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
			logger.Warn("the collection of blobs is not complete; the next day's sweep continues it", "error", err)
		}
		return swept, nil
	}
}

// ofMinute reports whether the event's own time is in this minute of a day. A late or repeated
// event has the same time.
func ofMinute(event json.RawMessage, minute string) bool {
	var e struct {
		Time time.Time `json:"time"`
	}
	return json.Unmarshal(event, &e) == nil && e.Time.UTC().Format("15:04") == minute
}

// sendWithin is the longest time that sending messages may delay the sweep.
const sendWithin = 5 * time.Second

// Sweeps returns the handler of the sweep's schedule and of its queue. Every invocation sweeps. The
// schedule's shortest period is one minute. So an invocation by the schedule also sends one message
// to the queue for each delay in delays, and each message invokes the function again. An invocation
// by a message sends no messages, because otherwise messages would multiply. A late or repeated
// message causes one more sweep. The error contains both the failure to send and the failure to
// sweep.
func Sweeps(sweep func(context.Context) (control.Swept, error), queue *sqs.Backlog, delays []time.Duration, logger *slog.Logger) func(context.Context, json.RawMessage) (control.Swept, error) {
	return func(ctx context.Context, event json.RawMessage) (control.Swept, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		var sent error
		if scheduled(event) {
			// Send first: the delays count from here. If the sweep came first, a long sweep would
			// delay all messages and leave a gap, and a sweep that does not end would send no
			// messages. The cost: if SQS is not reachable, this sweep is delayed by up to
			// sendWithin.
			if sent = send(ctx, queue, delays); sent != nil {
				logger.Error("the messages for the next sweeps were not sent; the next sweep starts in the next minute", "error", sent)
			}
		}
		swept, err := sweep(ctx)
		if swept == (control.Swept{}) {
			logger.Debug("the sweep found nothing") // this is so five times a minute, and each line costs
		} else {
			logger.Info("swept", slog.Any("", swept)) // the empty name makes the counts attributes of the line itself
		}
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
	return queue.Send(ctx, "sweep", delays...) // SQS refuses an empty message; the text has no meaning
}
