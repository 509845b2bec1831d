package sqs_test

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/queuetest"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
	"github.com/fairlead/fairlead/tools/elasticmq"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// The tests need two servers: ElasticMQ simulates the delays and timeouts of SQS, and moto
// supports all attributes of a queue.
var (
	server     elasticmq.Server
	attributes moto.Server
)

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	attributes.Stop()
	os.Exit(code)
}

func config(t *testing.T) aws.Config {
	t.Helper()
	return configOf(server.Endpoint(t))
}

func configOf(endpoint string) aws.Config {
	return aws.Config{
		Region: "eu-central-1", BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
}

func options() sqs.Options {
	return sqs.Options{
		Prefix: "t-" + strings.ToLower(rand.Text())[:12] + "-", MaxReceives: queuetest.MaxReceives, Make: true, Now: time.Now,
	}
}

func open(t *testing.T, o sqs.Options) *sqs.Queue {
	t.Helper()
	q, err := sqs.New(config(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestSQSConforms(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	cfg := config(t)
	var mu sync.Mutex
	prefixes := map[string]sqs.Options{} // options by folder, so that a second Open gets the same queues
	queuetest.Run(t, queuetest.Harness{
		Open: func(t *testing.T, dir string) (queue.Queue, func()) {
			mu.Lock()
			defer mu.Unlock()
			if _, known := prefixes[dir]; !known {
				prefixes[dir] = options()
			}
			q, err := sqs.New(cfg, prefixes[dir])
			if err != nil {
				t.Fatal(err)
			}
			return q, func() {}
		},
		Remote: true,
	})
}

// A runner's role may not create queues. The control plane creates the queue when it creates
// the runner.
func TestRunnerUsesTheQueueOfTheControlPlane(t *testing.T) {
	o := options()
	control := open(t, o)
	o.Make = false
	runner := open(t, o)
	for what, err := range map[string]error{
		"receive": receive(t, runner, "runner-1"),
		"send":    runner.Send(t.Context(), "runner-1", []byte("x"), 0),
	} {
		if fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("%s without a queue: %v, want kind not_found", what, err)
		}
	}
	for range 2 { // the second Make changes nothing and returns no error
		if err := control.Make(t.Context(), "runner-1", map[string]string{"fairlead:runner": "run_1"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := control.Send(t.Context(), "runner-1", []byte("job_1"), 0); err != nil {
		t.Fatal(err)
	}
	m, err := runner.Receive(t.Context(), "runner-1", time.Minute, queue.MaxWait)
	if err != nil || string(m.Body) != "job_1" {
		t.Fatalf("the runner received %q, %v", m.Body, err)
	}
	if err := runner.Delete(t.Context(), "runner-1", m.Receipt); err != nil {
		t.Error(err)
	}
}

func receive(t *testing.T, q *sqs.Queue, name string) error {
	t.Helper()
	_, err := q.Receive(t.Context(), name, time.Minute, 0)
	return err
}

// Make creates a queue with the settings that an operator expects: the queue is encrypted and
// tagged, refuses requests without TLS, and has a dead-letter queue. Make also gives these
// settings to a queue that an older release created.
func TestMakeSetsAllQueueAttributes(t *testing.T) {
	o := options()
	o.Tags = map[string]string{"fairlead": "control"}
	cfg := configOf(attributes.Endpoint(t))
	client := awssqs.NewFromConfig(cfg)
	old, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{
		QueueName: aws.String(o.Prefix + "runner-1-q"), Attributes: map[string]string{"MessageRetentionPeriod": "60"},
	})
	if err != nil {
		t.Fatal(err)
	}
	q, err := sqs.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Make(t.Context(), "runner-1", map[string]string{"runner": "run_1"}); err != nil {
		t.Fatal(err)
	}
	out, err := client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: old.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		t.Fatal(err)
	}
	var redrive struct {
		DeadLetterTargetArn string `json:"deadLetterTargetArn"`
	}
	if err := json.Unmarshal([]byte(out.Attributes["RedrivePolicy"]), &redrive); err != nil {
		t.Errorf("redrive policy %q: %v", out.Attributes["RedrivePolicy"], err)
	}
	if want := o.Prefix + "runner-1-dead"; !strings.HasSuffix(redrive.DeadLetterTargetArn, ":"+want) {
		t.Errorf("dead letters go to %s, want %s", redrive.DeadLetterTargetArn, want)
	}
	for attribute, want := range map[string]string{
		"SqsManagedSseEnabled": "true", "MessageRetentionPeriod": "345600", "VisibilityTimeout": "0", "ReceiveMessageWaitTimeSeconds": "0",
	} {
		if got := out.Attributes[attribute]; got != want {
			t.Errorf("%s is %q, want %q", attribute, got, want)
		}
	}
	if !strings.Contains(out.Attributes["Policy"], "aws:SecureTransport") {
		t.Errorf("the policy %q permits plain HTTP", out.Attributes["Policy"])
	}
	tags, err := client.ListQueueTags(t.Context(), &awssqs.ListQueueTagsInput{QueueUrl: old.QueueUrl})
	if err != nil || tags.Tags["fairlead"] != "control" || tags.Tags["runner"] != "run_1" {
		t.Errorf("tags are %v, %v", tags, err)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for what, change := range map[string]func(*sqs.Options){
		"a prefix with a dot":           func(o *sqs.Options) { o.Prefix = "a." },
		"a prefix too long":             func(o *sqs.Options) { o.Prefix = strings.Repeat("p", 43) },
		"no receives":                   func(o *sqs.Options) { o.MaxReceives = 0 },
		"more receives than SQS allows": func(o *sqs.Options) { o.MaxReceives = 1001 },
		"no clock":                      func(o *sqs.Options) { o.Now = nil },
	} {
		o := options()
		change(&o)
		if _, err := sqs.New(aws.Config{}, o); fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("%s: %v, want kind invalid", what, err)
		}
	}
}

// If no server is reachable, the error has KindUnavailable, because a retry may succeed.
func TestUnreachableSQSIsUnavailable(t *testing.T) {
	cfg := configOf("http://127.0.0.1:1")
	cfg.RetryMaxAttempts = 1
	q, err := sqs.New(cfg, options())
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"send": q.Send(t.Context(), "q", []byte("x"), 0), "receive": receive(t, q, "q"),
		"make": q.Make(t.Context(), "q", nil), "drop": q.Drop(t.Context(), "q"),
	} {
		if fairlead.KindOf(err) != fairlead.KindUnavailable {
			t.Errorf("%s: %v, want kind unavailable", what, err)
		}
	}
}
