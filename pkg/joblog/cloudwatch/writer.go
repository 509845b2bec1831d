package cloudwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
		client: cloudwatchlogs.NewFromConfig(cfg, func(o *cloudwatchlogs.Options) {
			o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
				r.MaxAttempts, r.MaxBackoff = transportAttempts, transportBackoff
			})
			o.RetryMaxAttempts = 0 // or the environment's would wrap ours
			o.HTTPClient = awsapi.Bounded(o.HTTPClient, attemptTimeout)
		}),
		group: group, now: now, last: map[joblog.Stream]int64{},
	}
}

// Put sends data, which begins at offset of the stream. It returns when
// CloudWatch has all of it, and may be repeated: what comes twice is indexed
// once. It waits while the service throttles, so it is called by what ships a
// spool and never by what a tool writes to.
func (t *Transport) Put(ctx context.Context, s joblog.Stream, offset int64, data []byte) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	op := "put log " + s.String()
	for _, batch := range batches(Encode(offset, data)) {
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
			Kind: fairlead.KindInvalid, Code: "log-events-rejected",
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

// Forget drops what is remembered of a stream that takes no more.
func (t *Transport) Forget(s joblog.Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, s)
}

// Repair brings into the log what CloudWatch has of the stream and the log has
// not. It is for a gap that does not close by itself and for the end of a
// stream that lacks something: reading is what CloudWatch allows little of, 10
// to 25 requests a second in a region. Events that are no pieces are passed by.
func (t *Transport) Repair(ctx context.Context, log joblog.Log, s joblog.Stream) error {
	var events []Event
	in := &cloudwatchlogs.GetLogEventsInput{
		LogGroupName: &t.group, LogStreamName: aws.String(StreamName(s)), StartFromHead: aws.Bool(true),
	}
	for {
		page, err := t.client.GetLogEvents(ctx, in)
		if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
			return nil // nothing was ever put
		}
		if err != nil {
			return awsapi.Classify(ctx, "CloudWatch Logs", "repair log "+s.String(), err)
		}
		for _, e := range page.Events {
			if piece, err := Decode(aws.ToString(e.Message)); err == nil {
				events = append(events, piece)
			}
		}
		if aws.ToString(page.NextForwardToken) == aws.ToString(in.NextToken) { // the end says so by the same token
			return Ingest(ctx, log, s, events)
		}
		in.NextToken = page.NextForwardToken
	}
}

// Ingest appends the events, which may repeat and come in any order, to the
// log. A *joblog.OffsetError says that something before them is missing: they
// come again later, or Repair fetches it.
func Ingest(ctx context.Context, log joblog.Log, s joblog.Stream, events []Event) error {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Offset, b.Offset) })
	for len(events) > 0 {
		// One append for pieces that follow each other: the log charges by the
		// append as well as by the byte.
		first := events[0]
		data, n := slices.Clone(first.Data), 1
		for n < len(events) && events[n].Offset == first.Offset+int64(len(data)) && len(data)+len(events[n].Data) <= joblog.MaxAppend {
			data = append(data, events[n].Data...)
			n++
		}
		if _, err := log.Append(ctx, s, first.Offset, data); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}
