package deadletter_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/deadletter"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/elasticmq"
)

var (
	queues elasticmq.Server
	tables dynamodblocal.Server
)

func TestMain(m *testing.M) {
	code := m.Run()
	queues.Stop()
	tables.Stop()
	os.Exit(code)
}

const (
	prefix = "fairlead-test-"
	region = "eu-central-1"
)

func functionARN(name string) string {
	return "arn:aws:lambda:" + region + ":000000000000:function:" + prefix + name + ":$LATEST"
}

// world is an account: SQS and DynamoDB are servers, and Lambda records its invocations.
type world struct {
	t      *testing.T
	cfg    aws.Config
	queues *sqs.Client
	mu     sync.Mutex
	events map[string][]json.RawMessage // by the function's ARN
	answer func(function string, event []byte) (payload, functionError string)
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, events: map[string][]json.RawMessage{}, answer: func(string, []byte) (string, string) { return "null", "" }}
	to := func(endpoint string) http.Handler {
		u, err := url.Parse(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		return httputil.NewSingleHostReverseProxy(u)
	}
	sqsServer, dynamo := to(queues.Endpoint(t)), to(tables.Endpoint(t))
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/2015-03-31/functions/"):
			w.invoked(rw, r)
		case strings.HasPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB"):
			dynamo.ServeHTTP(rw, r)
		default:
			sqsServer.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(front.Close)
	w.cfg = aws.Config{Region: region, BaseEndpoint: &front.URL, Credentials: credentials.NewStaticCredentialsProvider("test", "secret", "")}
	w.queues = sqs.NewFromConfig(w.cfg)
	return w
}

func (w *world) invoked(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Error(err)
	}
	name, _ := url.PathUnescape(strings.TrimSuffix(strings.TrimPrefix(r.URL.EscapedPath(), "/2015-03-31/functions/"), "/invocations"))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[name] = append(w.events[name], body)
	payload, failed := w.answer(name, body)
	if failed != "" {
		rw.Header().Set("X-Amz-Function-Error", failed)
	}
	fmt.Fprint(rw, payload)
}

// queue creates a queue with this name below the prefix, and returns its URL.
func (w *world) queue(name string, attributes map[string]string) string {
	w.t.Helper()
	full := prefix + strings.ToLower(w.t.Name()[strings.LastIndexByte(w.t.Name(), '/')+1:]) + "-" + name
	out, err := w.queues.CreateQueue(w.t.Context(), &sqs.CreateQueueInput{QueueName: &full, Attributes: attributes})
	if err != nil {
		w.t.Fatal(err)
	}
	return *out.QueueUrl
}

func (w *world) send(queue, body string, attributes map[string]string) {
	w.t.Helper()
	in := &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{}}
	for name, value := range attributes {
		in.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	if _, err := w.queues.SendMessage(w.t.Context(), in); err != nil {
		w.t.Fatal(err)
	}
}

// replay replays the queue, and returns the results in the order of the messages.
func (w *world) replay(queue string, o deadletter.Options) (out []deadletter.Message) {
	w.t.Helper()
	o.Prefix = prefix
	if err := deadletter.New(w.cfg, o).Replay(w.t.Context(), queue, func(m deadletter.Message) { out = append(out, m) }); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// left returns the number of messages in the queue, visible or not.
func (w *world) left(queue string) string {
	w.t.Helper()
	out, err := w.queues.GetQueueAttributes(w.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue,
		AttributeNames: []types.QueueAttributeName{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}

// asynchronous is the message of Lambda for an asynchronous invocation that failed.
func asynchronous(function, event string) string {
	return `{"version":"1.0","requestContext":{"functionArn":"` + functionARN(function) + `","condition":"RetriesExhausted"},"requestPayload":` + event + `}`
}

// A delivery of logs was given up, because the log table was unreachable. After the
// outage the function gets exactly the same event again.
func TestAsynchronousInvocationIsReplayed(t *testing.T) {
	w := newWorld(t)
	dead := w.queue("dead", nil)
	w.send(dead, asynchronous("logindex", `{"awslogs":{"data":"H4sI"}}`), nil)
	got := w.replay(dead, deadletter.Options{})
	if len(got) != 1 || got[0].Outcome != deadletter.Replayed || got[0].Target != functionARN("logindex") {
		t.Errorf("the result is %+v", got)
	}
	if events := w.events[functionARN("logindex")]; len(events) != 1 || string(events[0]) != `{"awslogs":{"data":"H4sI"}}` {
		t.Errorf("the function got %s", events)
	}
	if left := w.left(dead); left != "0+0" {
		t.Errorf("the queue has %s messages", left)
	}
}

// A batch of the table's stream was given up. The message has only its position.
func TestBatchOfTheStreamIsReplayed(t *testing.T) {
	w := newWorld(t)
	db := dynamodb.NewFromConfig(w.cfg)
	name := "replay"
	_, err := db.CreateTable(t.Context(), &dynamodb.CreateTableInput{TableName: &name, BillingMode: dynamotypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamotypes.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}},
		KeySchema:            []dynamotypes.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}},
		StreamSpecification:  &dynamotypes.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: dynamotypes.StreamViewTypeNewAndOldImages}})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"before", "first", "second", "after"} {
		if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &name, Item: map[string]dynamotypes.AttributeValue{"pk": &dynamotypes.AttributeValueMemberS{Value: key}}}); err != nil {
			t.Fatal(err)
		}
	}
	table, err := db.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		t.Fatal(err)
	}
	records := dynamodblocal.Records(t, tables.Endpoint(t), name)
	if len(records) != 4 {
		t.Fatalf("the stream has %d records, want 4", len(records))
	}
	stream := *table.Table.LatestStreamArn
	batch := func(start, end string) string {
		return `{"requestContext":{"functionArn":"` + functionARN("dispatch") + `"},"DDBStreamBatchInfo":{"shardId":"` + shardOf(t, w, stream) +
			`","startSequenceNumber":"` + start + `","endSequenceNumber":"` + end + `","batchSize":2,"streamArn":"` + stream + `"}}`
	}

	dead := w.queue("dead", nil)
	w.send(dead, batch(sequence(t, records[1]), sequence(t, records[2])), nil)
	if got := w.replay(dead, deadletter.Options{}); len(got) != 1 || got[0].Outcome != deadletter.Replayed {
		t.Fatalf("the result is %+v", got)
	}
	var event struct{ Records []json.RawMessage }
	if err := json.Unmarshal(w.events[functionARN("dispatch")][0], &event); err != nil {
		t.Fatal(err)
	}
	if len(event.Records) != 2 || sequence(t, event.Records[0]) != sequence(t, records[1]) || !strings.Contains(string(event.Records[1]), `"second"`) {
		t.Errorf("the function got the records %s, want the second and third", event.Records)
	}

	// The function refuses a record again: the message stays.
	w.answer = func(string, []byte) (string, string) { return `{"batchItemFailures":[{"itemIdentifier":"1"}]}`, "" }
	w.send(dead, batch(sequence(t, records[1]), sequence(t, records[2])), nil)
	if got := w.replay(dead, deadletter.Options{}); len(got) != 1 || got[0].Outcome != deadletter.Failed || !strings.Contains(got[0].Detail, "refused 1 records") || w.left(dead) != "0+1" {
		t.Errorf("the result is %+v, and the queue has %s messages", got, w.left(dead))
	}

	// The shard no longer exists.
	gone := w.queue("gone", nil)
	w.send(gone, strings.Replace(batch(sequence(t, records[1]), sequence(t, records[2])), shardOf(t, w, stream), "shardId-00000000000000000000-00000000", 1), nil)
	if got := w.replay(gone, deadletter.Options{Discard: true}); len(got) != 1 || got[0].Outcome != deadletter.Expired || w.left(gone) != "0+0" {
		t.Errorf("the result is %+v, and the queue has %s messages", got, w.left(gone))
	}
}

func shardOf(t *testing.T, w *world, stream string) string {
	t.Helper()
	body := strings.NewReader(`{"StreamArn":"` + stream + `"}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, *w.cfg.BaseEndpoint, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDBStreams_20120810.DescribeStream")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20261120/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var out struct {
		StreamDescription struct{ Shards []struct{ ShardId string } }
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || len(out.StreamDescription.Shards) == 0 {
		t.Fatalf("describe the stream: %v", err)
	}
	return out.StreamDescription.Shards[0].ShardId
}

func sequence(t *testing.T, record json.RawMessage) string {
	t.Helper()
	var r struct {
		Dynamodb struct{ SequenceNumber string } `json:"dynamodb"`
	}
	if err := json.Unmarshal(record, &r); err != nil {
		t.Fatal(err)
	}
	return r.Dynamodb.SequenceNumber
}

// An event did not reach the webhooks' queue, and a webhook's event was received too often.
func TestEventsReturnToTheirQueue(t *testing.T) {
	w := newWorld(t)
	dead := w.queue("dead", nil)
	target := w.queue("webhooks", map[string]string{"VisibilityTimeout": "0",
		"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:elasticmq:000000000000:` + dead[strings.LastIndexByte(dead, '/')+1:] + `","maxReceiveCount":"1"}`})
	arn := "arn:aws:sqs:" + region + ":000000000000:" + target[strings.LastIndexByte(target, '/')+1:]
	w.send(dead, `{"detail-type":"fairlead.job.failed"}`, map[string]string{"RULE_ARN": "arn:aws:events:eu-central-1:000000000000:rule/fairlead-test/WebhookRule", "TARGET_ARN": arn})
	if got := w.replay(dead, deadletter.Options{}); len(got) != 1 || got[0].Outcome != deadletter.Replayed || got[0].Target != arn {
		t.Errorf("the result is %+v", got)
	}
	out, err := w.queues.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &target, WaitTimeSeconds: 5})
	if err != nil || len(out.Messages) != 1 || *out.Messages[0].Body != `{"detail-type":"fairlead.job.failed"}` {
		t.Fatalf("the queue has %+v, %v", out, err)
	}
}

// A message that cannot be replayed stays, and keeps no other message from being replayed.
func TestDeadLetterStaysUnlessReplayed(t *testing.T) {
	for name, tt := range map[string]struct {
		body       string
		attributes map[string]string
		outcome    deadletter.Outcome
	}{
		"fails-again":      {asynchronous("broken", `{}`), nil, deadletter.Failed},
		"foreign-function": {strings.Replace(asynchronous("x", `{}`), prefix, "payroll-", 1), nil, deadletter.Foreign},
		"foreign-queue":    {`{}`, map[string]string{"TARGET_ARN": "arn:aws:sqs:eu-central-1:000000000000:payroll"}, deadletter.Foreign},
		"foreign-stream":   {`{"requestContext":{"functionArn":"` + functionARN("dispatch") + `"},"DDBStreamBatchInfo":{"streamArn":"x","endSequenceNumber":"1"}}`, nil, deadletter.Foreign},
		"no-form":          {`hello`, nil, deadletter.Foreign},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.answer = func(function string, _ []byte) (string, string) {
				if strings.Contains(function, "broken") {
					return `{"errorMessage":"canary-of-a-customer"}`, "Unhandled"
				}
				return "null", ""
			}
			dead := w.queue("dead", nil)
			w.send(dead, tt.body, tt.attributes)
			w.send(dead, asynchronous("logindex", `{"n":1}`), nil)
			outcomes := map[deadletter.Outcome]int{}
			for _, m := range w.replay(dead, deadletter.Options{Discard: true}) {
				outcomes[m.Outcome]++
				if strings.Contains(m.Detail, "canary") {
					t.Errorf("the result shows the function's answer: %s", m.Detail)
				}
			}
			if outcomes[tt.outcome] != 1 || outcomes[deadletter.Replayed] != 1 || w.left(dead) != "0+1" {
				t.Errorf("the outcomes are %v, and the queue has %s messages", outcomes, w.left(dead))
			}
		})
	}
}
