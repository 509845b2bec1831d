package cloudwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
)

// The limits of one PutLogEvents request, from the service's API reference. A
// batch must not span 24 hours either, which one of a single time does not.
const (
	maxBatchBytes  = 1 << 20
	maxBatchEvents = 10_000
	eventOverhead  = 26 // bytes that each event counts beyond its message
)

// batches splits the messages, in their order, into as few requests as the
// limits allow.
func batches(messages []string) (all [][]string) {
	start, size := 0, 0
	for i, m := range messages {
		n := len(m) + eventOverhead
		if i > start && (size+n > maxBatchBytes || i-start == maxBatchEvents) {
			all = append(all, messages[start:i])
			start, size = i, 0
		}
		size += n
	}
	if start < len(messages) {
		all = append(all, messages[start:])
	}
	return all
}

// attemptTimeout bounds one attempt of one request; see the store's engine.
const attemptTimeout = 10 * time.Second

// Transport carries logs through one log group. Safe for concurrent use, but
// the pieces of one stream are put one after the other.
type Transport struct {
	client *cloudwatchlogs.Client
	group  string
	now    func() time.Time

	mu   sync.Mutex
	last map[joblog.Stream]int64 // the time of a stream's latest event, in milliseconds
}

// The retries of a request. Throttling is the ordinary case at 5,000 requests a
// second for all of an account, so they go on for about a minute; the caller
// ships from a spool, and the tool does not wait.
const (
	transportAttempts = 12
	transportBackoff  = 10 * time.Second
)

// NewTransport returns the transport through the log group, which must exist.
// It sends nothing. It replaces cfg's retries by its own.
func NewTransport(cfg aws.Config, group string, now func() time.Time) *Transport {
	return &Transport{
		client: cloudwatchlogs.NewFromConfig(awsapi.Bound(cfg, attemptTimeout), func(o *cloudwatchlogs.Options) {
			o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
				r.MaxAttempts, r.MaxBackoff = transportAttempts, transportBackoff
			})
			o.RetryMaxAttempts = 0 // or the environment's would wrap ours
		}),
		group: group, now: now, last: map[joblog.Stream]int64{},
	}
}

// Put sends data, which begins at offset of the stream. It returns when
// CloudWatch has all of it, and may be repeated: what comes twice is indexed
// once. It waits while the service throttles, so it is called by what ships a
// spool and never by what a tool writes to.
func (t *Transport) Put(ctx context.Context, s joblog.Stream, offset int64, data []byte) error {
	return t.send(ctx, s, Encode(offset, data))
}

// End says what a stream is that has all been put. A reader of the group knows
// by it whether it has found all of it. It may be repeated.
func (t *Transport) End(ctx context.Context, info joblog.Info) error {
	return t.send(ctx, info.Stream, []string{encodeEnd(info.Size, End{CRC32: info.CRC32, Truncated: info.Truncated})})
}

func (t *Transport) send(ctx context.Context, s joblog.Stream, messages []string) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	op := "put log " + s.String()
	for _, batch := range batches(messages) {
		err := t.put(ctx, s, batch)
		if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
			if err = t.makeStream(ctx, s); err == nil {
				err = t.put(ctx, s, batch)
			}
		}
		if err != nil {
			return awsapi.Classify(ctx, "CloudWatch Logs", op, err)
		}
	}
	return nil
}

func (t *Transport) put(ctx context.Context, s joblog.Stream, batch []string) error {
	at := t.stamp(s)
	events := make([]types.InputLogEvent, len(batch))
	for i := range batch {
		events[i] = types.InputLogEvent{Message: &batch[i], Timestamp: &at}
	}
	out, err := t.client.PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{
		LogGroupName: &t.group, LogStreamName: aws.String(StreamName(s)), LogEvents: events,
	})
	if _, ok := errors.AsType[*types.DataAlreadyAcceptedException](err); ok {
		return nil
	}
	if err == nil && out.RejectedLogEventsInfo != nil {
		return &fairlead.Error{
			Kind: fairlead.KindInvalid, Code: fairlead.CodeLogEventsRejected,
			Message: fmt.Sprintf("put log %s: CloudWatch rejects events of %s", s, time.UnixMilli(at).UTC().Format(time.RFC3339)),
			Hint:    "This machine's clock is wrong: an event is at most 2 hours ahead and 14 days old.",
		}
	}
	return err
}

// stamp returns the time of the stream's next events, never before that of the
// ones before, whatever the clock does: the service sorts by it.
func (t *Transport) stamp(s joblog.Stream) int64 {
	now := t.now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[s] = max(t.last[s], now)
	return t.last[s]
}

func (t *Transport) makeStream(ctx context.Context, s joblog.Stream) error {
	_, err := t.client.CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{
		LogGroupName: &t.group, LogStreamName: aws.String(StreamName(s)),
	})
	if _, ok := errors.AsType[*types.ResourceAlreadyExistsException](err); ok {
		return nil
	}
	return err
}
