package plane_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	lambdaevents "github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
	"github.com/fairlead/fairlead/pkg/seal/kms"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/webhook"
	"github.com/fairlead/fairlead/pkg/webhook/https"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

// batch receives the messages of the bus until the queue is empty, in the form of a Lambda event.
func (c *cloud) batch() (e lambdaevents.SQSEvent) {
	c.t.Helper()
	q := awssqs.NewFromConfig(c.config("EVENTBRIDGE"))
	for {
		out := must(q.ReceiveMessage(c.t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &c.eventsURL, MaxNumberOfMessages: 10, VisibilityTimeout: 600}))(c.t)
		for _, m := range out.Messages {
			e.Records = append(e.Records, lambdaevents.SQSMessage{MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body})
		}
		if len(out.Messages) == 0 {
			return e
		}
	}
}

// As Lambda does, settle deletes the messages that the answer does not name as failed. It returns
// the number of the remaining messages.
func (c *cloud) settle(e lambdaevents.SQSEvent, answer lambdaevents.SQSEventResponse) int {
	c.t.Helper()
	again := map[string]bool{}
	for _, f := range answer.BatchItemFailures {
		again[f.ItemIdentifier] = true
	}
	q := awssqs.NewFromConfig(c.config("EVENTBRIDGE"))
	for _, m := range e.Records {
		if !again[m.MessageId] {
			must(q.DeleteMessage(c.t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &c.eventsURL, ReceiptHandle: &m.ReceiptHandle}))(c.t)
		}
	}
	return len(again)
}

// A job ends. The table's stream, dispatch, the bus and a queue carry the event to the deliveries.
// A failing endpoint gets the event again after the queue has hidden it, and once more on a
// person's request. A message of another system goes to the dead-letter queue and does not delay
// other messages.
func TestEventsReachEndpointsOnAWS(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	var mu sync.Mutex
	status, got := http.StatusServiceUnavailable, []string{}
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		var e struct{ Type, Subject string }
		if err := json.Unmarshal(body, &e); err != nil || r.Header.Get(webhook.HeaderSignature) == "" {
			t.Errorf("sent %s: %v", body, err)
		}
		if status < 300 {
			got = append(got, e.Type)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(endpoint.Close)
	first := must(plane.Control(ctx, c.config("DYNAMODB"), plane.Resources{Table: c.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey}, slog.New(slog.DiscardHandler)))(t)

	first.Sealer = kms.New(c.config("KMS"), time.Now, c.sealKey)
	first.Queue = must(plane.Queue(c.config("SQS"), c.prefix, true))(t)
	must(first.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "east"}, ""))(t)
	must(first.CreateWebhook(ctx, fairlead.DefaultOrg, control.NewWebhook{Name: "ops", URL: endpoint.URL, Events: []string{"fairlead.job.canceled"}}, ""))(t)
	j := must(first.CheckRunner(ctx, control.User{Org: fairlead.DefaultOrg}, "east", ""))(t)
	must(first.CancelJob(ctx, fairlead.DefaultOrg, j.ID))(t)
	dispatch := c.start("dispatch", c.dispatch())
	dispatched := 0
	tell := func() {
		records := dynamodblocal.Records(t, c.endpoints["DYNAMODB"], c.table)
		if out := must(dispatch.Invoke(ctx, map[string]any{"Records": records[dispatched:]}))(t); string(out) != `{"batchItemFailures":[]}` {
			t.Fatalf("dispatch answers %s", out)
		}
		dispatched = len(records)
	}
	tell()

	clock := time.Now()
	handle := plane.Deliveries(&control.Deliverer{Store: first.Store, Sealer: first.Sealer, IDs: first.IDs, Logger: first.Logger,
		Sender: https.New(endpoint.Client().Transport, 5*time.Second, "test", time.Now), Now: func() time.Time { return clock }},
		sqs.NewBacklog(c.config("EVENTBRIDGE"), c.eventsURL), first.Logger)
	q := awssqs.NewFromConfig(c.config("EVENTBRIDGE"))
	must(q.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &c.eventsURL, MessageBody: aws.String(`{"source":"evil","detail-type":"x","detail":{}}`)}))(t)
	batch := c.batch()
	if again := c.settle(batch, must(handle(ctx, batch))(t)); len(batch.Records) != 3 || again != 2 {
		t.Fatalf("of %d messages %d come again, want the invalid one and the one of the failing endpoint", len(batch.Records), again)
	}
	deliveries := func() []control.Delivery {
		list, _, err := first.Deliveries(ctx, fairlead.DefaultOrg, "ops", fairlead.PageQuery{Limit: 10})
		if err != nil || len(list) != 1 {
			t.Fatalf("%d deliveries, %v", len(list), err)
		}
		return list
	}
	if d := deliveries()[0]; d.State != store.DeliveryPending || d.Status != 503 || d.Attempts != 1 {
		t.Errorf("after the first attempt: %+v", d)
	}
	// The message is hidden for the pause, not for the queue's visibility timeout. A message that
	// is received before its time is not sent.
	hidden := must(q.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &c.eventsURL, AttributeNames: []sqstypes.QueueAttributeName{"ApproximateNumberOfMessagesNotVisible"}}))(t)
	if hidden.Attributes["ApproximateNumberOfMessagesNotVisible"] != "2" {
		t.Errorf("hidden: %v", hidden.Attributes)
	}
	mu.Lock()
	status = http.StatusNoContent
	mu.Unlock()
	if again := len(must(handle(ctx, batch))(t).BatchItemFailures); again != 2 || len(got) > 0 {
		t.Errorf("before its time %d messages come again, and %v was sent", again, got)
	}
	clock = clock.Add(time.Minute)
	for range 2 { // Lambda may repeat an invocation
		if again := len(must(handle(ctx, batch))(t).BatchItemFailures); again != 1 {
			t.Errorf("%d messages come again, want the invalid one", again)
		}
	}
	if strings.Join(got, " ") != "fairlead.job.canceled" || deliveries()[0].State != store.DeliveryDelivered {
		t.Errorf("the endpoint got %q", got)
	}

	must(first.Redeliver(ctx, fairlead.DefaultOrg, "ops", deliveries()[0].ID))(t)
	tell()
	batch = c.batch()
	if again := c.settle(batch, must(handle(ctx, batch))(t)); again != 0 || strings.Join(got, " ") != "fairlead.job.canceled fairlead.job.canceled" {
		t.Errorf("asked for again, %d messages come again and the endpoint got %q", again, got)
	}

	// The deployed function reaches public addresses only; this endpoint has a private one.
	must(first.Redeliver(ctx, fairlead.DefaultOrg, "ops", deliveries()[0].ID))(t)
	tell()
	out := must(c.start("webhook", &config.Webhook{Table: c.table, Queue: c.eventsURL, SealKey: c.sealKey, Timeout: 5 * time.Second, LogLevel: "info"}).Invoke(ctx, c.batch()))(t)
	if string(out) != `{"batchItemFailures":[]}` || len(got) != 2 {
		t.Errorf("it answers %s, and the endpoint got %q", out, got)
	}
	if d := deliveries()[0]; d.State != store.DeliveryFailed || !strings.Contains(d.Problem, "no public address") {
		t.Errorf("the delivery is %+v", d)
	}
}
