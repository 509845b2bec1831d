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
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
)

// What starts the sweep: its schedule, its queue, and a person who invokes it
// with whatever comes to mind.
const (
	bySchedule = `{"version":"0","source":"aws.events","detail-type":"Scheduled Event","detail":{}}`
	byQueue    = `{"Records":[{"messageId":"m","body":"sweep","eventSource":"aws:sqs"}]}`
	byHand     = `"now"`
)

// waiting returns how many messages of the queue wait for their time.
func (c *cloud) waiting(url string) string {
	c.t.Helper()
	const visible, delayed = sqstypes.QueueAttributeNameApproximateNumberOfMessages, sqstypes.QueueAttributeNameApproximateNumberOfMessagesDelayed
	out := must(awssqs.NewFromConfig(c.config("SQS")).GetQueueAttributes(c.t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &url,
		AttributeNames: []sqstypes.QueueAttributeName{visible, delayed}}))(c.t)
	if n := out.Attributes[string(visible)]; n != "0" {
		c.t.Errorf("%s messages start the sweep at once", n)
	}
	return out.Attributes[string(delayed)]
}

// The schedule has the function start itself for each of its delays. What starts
// it otherwise does not, or messages would make messages without end.
func TestSweepStartsItselfAgain(t *testing.T) {
	c := newCloud(t)
	cfg := c.sweep()
	f := c.start("sweep", cfg)
	for _, test := range []struct{ event, waiting string }{{byQueue, "0"}, {byHand, "0"}, {bySchedule, "4"}, {byQueue, "4"}, {bySchedule, "8"}} {
		out := must(f.Invoke(t.Context(), json.RawMessage(test.event)))(t)
		if string(out) != `{"Looked":0,"Woken":0,"Expired":0,"TimedOut":0,"Failed":0}` {
			t.Errorf("%s: it answers %s", test.event, out)
		}
		if n := c.waiting(cfg.Queue); n != test.waiting {
			t.Errorf("%s: %s messages wait, want %s", test.event, n, test.waiting)
		}
	}
}

// A queue that is gone makes the function fail, so that somebody hears of it.
func TestSweepThatCannotSendFails(t *testing.T) {
	c := newCloud(t)
	cfg := c.sweep()
	cfg.Queue += "-gone"
	f := c.start("sweep", cfg)
	if _, err := f.Invoke(t.Context(), json.RawMessage(bySchedule)); err == nil || !strings.Contains(err.Error(), cfg.Queue) {
		t.Errorf("got %v, want an error that names the queue", err)
	}
	if out := must(f.Invoke(t.Context(), json.RawMessage(byQueue)))(t); !strings.Contains(string(out), `"Failed":0`) {
		t.Errorf("started by a message that was on its way, it answers %s", out)
	}
}

// What is sent is sent before the sweep, which may last; the sweep is made
// whether it was sent or not; and each of the two failures is told, whatever
// became of the other.
func TestSweepIsMadeThoughNothingWasSent(t *testing.T) {
	c := newCloud(t)
	queue, broken := c.sweep().Queue, errors.New("the table is away")
	for _, test := range []struct {
		name, queue, waiting string
		sweep                error
	}{
		{"all is well", queue, "1", nil},
		{"the sweep fails", queue, "2", broken},
		{"nothing is sent", queue + "-gone", "2", nil},
		{"both fail", queue + "-gone", "2", broken},
	} {
		swept := 0
		handle := plane.Sweeps(func(context.Context) (control.Swept, error) {
			swept++
			if n := c.waiting(queue); n != test.waiting {
				t.Errorf("%s: when it sweeps %s messages wait, want %s", test.name, n, test.waiting)
			}
			return control.Swept{Looked: 3}, test.sweep
		}, sqs.NewBacklog(c.config("SQS"), test.queue), []time.Duration{time.Minute}, slog.New(slog.DiscardHandler))
		out, err := handle(t.Context(), json.RawMessage(bySchedule))
		if swept != 1 || out.Looked != 3 {
			t.Errorf("%s: it swept %d times, and says %+v", test.name, swept, out)
		}
		if got, want := errors.Is(err, broken), test.sweep != nil; got != want {
			t.Errorf("%s: the error %v tells of the sweep: %t, want %t", test.name, err, got, want)
		}
		if got, want := err != nil && strings.Contains(err.Error(), test.queue), test.queue != queue; got != want {
			t.Errorf("%s: the error %v tells of what was sent: %t, want %t", test.name, err, got, want)
		}
	}
}
