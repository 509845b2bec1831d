package plane_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/pkg/blob/s3"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
)

// The events that start the sweep: of the schedule, of the queue, and of a person who invokes it
// with any text.
const (
	bySchedule = `{"version":"0","source":"aws.events","detail-type":"Scheduled Event","detail":{}}`
	byQueue    = `{"Records":[{"messageId":"m","body":"sweep","eventSource":"aws:sqs"}]}`
	byHand     = `"now"`
)

// waiting returns the number of delayed messages in the queue.
func (c *cloud) waiting(url string) string {
	c.t.Helper()
	const visible, delayed = sqstypes.QueueAttributeNameApproximateNumberOfMessages, sqstypes.QueueAttributeNameApproximateNumberOfMessagesDelayed
	out := must(awssqs.NewFromConfig(c.config("SQS")).GetQueueAttributes(c.t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &url,
		AttributeNames: []sqstypes.QueueAttributeName{visible, delayed}}))(c.t)
	if n := out.Attributes[string(visible)]; n != "0" {
		c.t.Errorf("%s messages are not delayed", n)
	}
	return out.Attributes[string(delayed)]
}

// The schedule makes the function send a message for each of its delays. Other invocations send
// no messages, because otherwise messages would multiply without end.
func TestOnlyTheScheduleSendsSweepMessages(t *testing.T) {
	c := newCloud(t)
	cfg := c.sweep()
	f := c.start("sweep", cfg)
	for _, test := range []struct{ event, waiting string }{{byQueue, "0"}, {byHand, "0"}, {bySchedule, "4"}, {byQueue, "4"}, {bySchedule, "8"}} {
		out := must(f.Invoke(t.Context(), json.RawMessage(test.event)))(t)
		if string(out) != `{"Looked":0,"Woken":0,"Expired":0,"TimedOut":0,"Failed":0,"Stuck":0,"Turned":0,"Lost":0,"Letters":0,"Runs":0,"Skipped":0,"Plans":0}` {
			t.Errorf("%s: the sweep answers %s", test.event, out)
		}
		if n := c.waiting(cfg.Queue); n != test.waiting {
			t.Errorf("%s: %s messages wait, want %s", test.event, n, test.waiting)
		}
	}
}

// A missing queue makes the function fail, so that an alarm reports it.
func TestSweepFailsWithoutItsQueue(t *testing.T) {
	c := newCloud(t)
	cfg := c.sweep()
	cfg.Queue += "-gone"
	f := c.start("sweep", cfg)
	if _, err := f.Invoke(t.Context(), json.RawMessage(bySchedule)); err == nil || !strings.Contains(err.Error(), cfg.Queue) {
		t.Errorf("got %v, want an error that names the queue", err)
	}
	if out := must(f.Invoke(t.Context(), json.RawMessage(byQueue)))(t); !strings.Contains(string(out), `"Failed":0`) {
		t.Errorf("started by a message, the sweep answers %s", out)
	}
}

// The messages are sent before the sweep, which may take long. The sweep runs also when sending
// fails. The error contains each of the two failures.
func TestSweepRunsWhenSendingFails(t *testing.T) {
	c := newCloud(t)
	queue, broken := c.sweep().Queue, errors.New("the table is away")
	for _, test := range []struct {
		name, queue, waiting string
		sweep                error
	}{
		{"sending and sweep succeed", queue, "1", nil},
		{"the sweep fails", queue, "2", broken},
		{"sending fails", queue + "-gone", "2", nil},
		{"both fail", queue + "-gone", "2", broken},
	} {
		swept := 0
		handle := plane.Sweeps(func(context.Context) (control.Swept, error) {
			swept++
			if n := c.waiting(queue); n != test.waiting {
				t.Errorf("%s: %s messages wait during the sweep, want %s", test.name, n, test.waiting)
			}
			return control.Swept{Looked: 3}, test.sweep
		}, sqs.NewBacklog(c.config("SQS"), test.queue), []time.Duration{time.Minute}, slog.New(slog.DiscardHandler))
		out, err := handle(t.Context(), json.RawMessage(bySchedule))
		if swept != 1 || out.Looked != 3 {
			t.Errorf("%s: swept %d times, with the result %+v", test.name, swept, out)
		}
		if got, want := errors.Is(err, broken), test.sweep != nil; got != want {
			t.Errorf("%s: the error %v names the sweep: %t, want %t", test.name, err, got, want)
		}
		if got, want := err != nil && strings.Contains(err.Error(), test.queue), test.queue != queue; got != want {
			t.Errorf("%s: the error %v names the queue: %t, want %t", test.name, err, got, want)
		}
	}
}

// atThatMinute is a schedule's event in the minute of the day in which blobs are collected.
const atThatMinute = `{"source":"aws.events","detail-type":"Scheduled Event","time":"2026-11-22T03:17:42Z"}`

// The function removes an old unreferenced blob and keeps a young one.
func TestUnreferencedBlobsAreRemovedOnAWS(t *testing.T) {
	c := newCloud(t)
	blobs := must(s3.New(c.config("S3"), s3.Options{Bucket: c.bucket, PathStyle: true}))(t)
	key := func(age time.Duration) string {
		return "state/ins_1/web/00000001-" + fairlead.RandomIDs(func() time.Time { return time.Now().Add(-age) })("w")
	}
	old, young := key(2*time.Hour), key(time.Minute)
	for _, k := range []string{old, young} {
		if err := blobs.Put(t.Context(), k, []byte("state")); err != nil {
			t.Fatal(err)
		}
	}
	must(c.start("sweep", c.sweep()).Invoke(t.Context(), json.RawMessage(atThatMinute)))(t)
	if left := must(blobs.List(t.Context(), ""))(t); len(left) != 1 || left[0] != young {
		t.Errorf("the blobs %v are left, want the young one only", left)
	}
}

// Blobs are collected once a day after a scheduled sweep. A failed collection does not fail the
// sweep. The collection ends before the function's deadline.
func TestBlobsAreCollectedAfterOneSweepADay(t *testing.T) {
	broken := errors.New("the table is away")
	for _, test := range []struct {
		name, event      string
		sweep, collect   error
		sweeps, collects int
	}{
		{"that minute", atThatMinute, nil, nil, 1, 1},
		{"that minute, but the bucket is away", atThatMinute, nil, broken, 1, 1},
		{"that minute, but the table is away", atThatMinute, broken, nil, 1, 0},
		{"another minute", strings.Replace(atThatMinute, "03:17", "03:18", 1), nil, nil, 1, 0},
		{"an event without a time", bySchedule, nil, nil, 1, 0},
		{"a message of that minute", strings.Replace(atThatMinute, "aws.events", "aws.sqs", 1), nil, nil, 1, 0},
		{"a person", byHand, nil, nil, 1, 0},
	} {
		sweeps, collects := 0, 0
		handle := plane.Collects(func(context.Context, json.RawMessage) (control.Swept, error) {
			sweeps++
			return control.Swept{Looked: 3}, test.sweep
		}, func(ctx context.Context) error {
			collects++
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > 59*time.Second {
				t.Errorf("%s: the collection's deadline is %s (%t)", test.name, end, ok)
			}
			return test.collect
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out, err := handle(ctx, json.RawMessage(test.event))
		cancel()
		if !errors.Is(err, test.sweep) || out.Looked != 3 || sweeps != test.sweeps || collects != test.collects {
			t.Errorf("%s: it swept %d times and collected %d times: %+v, %v", test.name, sweeps, collects, out, err)
		}
	}
}
