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

// The limits of one PutLogEvents request, from the service's API reference. The service also
// refuses a batch whose events span more than 24 hours. All events of our batches have the
// same time.
const (
	maxBatchBytes  = 1 << 20
	maxBatchEvents = 10_000
	eventOverhead  = 26 // bytes that the service counts for each event in addition to its message
)

// batches splits the messages, in order, into as few requests as the limits allow.
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

// attemptTimeout limits one attempt of one request; see package store/dynamo.
const attemptTimeout = 10 * time.Second

// Transport transports logs through one log group. Safe for concurrent use, but a caller
// must put the pieces of one stream one after the other.
type Transport struct {
	client *cloudwatchlogs.Client
	group  string
	now    func() time.Time

	mu   sync.Mutex
	last map[joblog.Stream]int64 // time of each stream's latest event, in milliseconds since 1970
}

// The retries of a request. Throttling is normal, because all writers of an account together
// may send only 5,000 requests a second. So the retries last for about a minute. The caller
// sends from a spool, so the tool does not wait for the retries.
const (
	transportAttempts = 12
	transportBackoff  = 10 * time.Second
)

// NewTransport returns the transport through the log group, which must exist. It sends no
// request. The transport uses its own retries, not the retries of cfg.
func NewTransport(cfg aws.Config, group string, now func() time.Time) *Transport {
	return &Transport{
		client: cloudwatchlogs.NewFromConfig(awsapi.Bound(cfg, attemptTimeout), func(o *cloudwatchlogs.Options) {
			o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
				r.MaxAttempts, r.MaxBackoff = transportAttempts, transportBackoff
			})
			o.RetryMaxAttempts = 0 // otherwise the SDK wraps our retries with the attempts set in the environment
		}),
		group: group, now: now, last: map[joblog.Stream]int64{},
	}
}

// Put sends data, which begins at offset of the stream. It returns when CloudWatch has all
// bytes of data. The caller may repeat a Put: the log stores repeated bytes once. Put waits
// while the service throttles. So only the sender of a spool may call Put. The code that
// receives a tool's output must not call it, because the tool would wait.
func (t *Transport) Put(ctx context.Context, s joblog.Stream, offset int64, data []byte) error {
	return t.send(ctx, s, Encode(offset, data))
}

// End writes the size and checksum of a stream to the log group, after all bytes of the
// stream were put. So a reader of the group can check whether it has all bytes. The caller
// may repeat End.
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
			Message: fmt.Sprintf("put log %s: CloudWatch rejects events with the time %s", s, time.UnixMilli(at).UTC().Format(time.RFC3339)),
			Hint:    "Set the clock of this machine: an event may be at most 2 hours in the future and 14 days old.",
		}
	}
	return err
}

// stamp returns the time of the stream's next events. The time is never before the time of
// earlier events, even if the clock goes back, because the service sorts events by time.
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
