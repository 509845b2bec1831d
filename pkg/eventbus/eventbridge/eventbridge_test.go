package eventbridge_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awseb "github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/eventbus"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbridge"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbustest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/tools/moto"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

func configAt(url string) aws.Config {
	return aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(url), Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		Retryer: func() aws.Retryer { return aws.NopRetryer{} }}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// open creates a bus with a rule that sends all events to a queue, as a subscriber does.
func open(t *testing.T) (eventbus.Bus, func() []events.Domain) {
	cfg := configAt(server.Endpoint(t))
	cfg.Retryer = nil // the server may be slow on a busy machine; a repeated event is allowed
	name := "bus-" + rand.Text()
	q, eb := sqs.NewFromConfig(cfg), awseb.NewFromConfig(cfg)
	url := must[*sqs.CreateQueueOutput](t)(q.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name,
		Attributes: map[string]string{"MaximumMessageSize": "262144"}})).QueueUrl
	arn := must[*sqs.GetQueueAttributesOutput](t)(q.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: url,
		AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn}})).Attributes["QueueArn"]
	must[*awseb.CreateEventBusOutput](t)(eb.CreateEventBus(t.Context(), &awseb.CreateEventBusInput{Name: &name}))
	must[*awseb.PutRuleOutput](t)(eb.PutRule(t.Context(), &awseb.PutRuleInput{Name: aws.String("all"), EventBusName: &name,
		EventPattern: aws.String(`{"source":["fairlead"]}`), State: types.RuleStateEnabled}))
	must[*awseb.PutTargetsOutput](t)(eb.PutTargets(t.Context(), &awseb.PutTargetsInput{Rule: aws.String("all"), EventBusName: &name,
		Targets: []types.Target{{Id: aws.String("queue"), Arn: &arn}}}))
	return eventbridge.New(cfg, name), func() (list []events.Domain) {
		out := must[*sqs.ReceiveMessageOutput](t)(q.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url,
			MaxNumberOfMessages: 10, WaitTimeSeconds: 2, VisibilityTimeout: 600}))
		for _, m := range out.Messages {
			e, err := eventbridge.Decode([]byte(*m.Body))
			if err != nil {
				t.Fatalf("%v: %.500s", err, *m.Body)
			}
			list = append(list, e)
		}
		return list
	}
}

func TestEventBridgeConforms(t *testing.T) { eventbustest.Run(t, open) }

// EventBridge may accept a request and refuse some of its entries.
func TestRefusedEntriesReturnErrors(t *testing.T) {
	answers := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		fmt.Fprint(w, <-answers)
	}))
	defer s.Close()
	b := eventbridge.New(configAt(s.URL), "bus")
	list := make([]events.Domain, 3)
	for i := range list {
		list[i] = events.Domain{V: 1, Type: "fairlead.job.queued", Subject: fmt.Sprint("job_", i), Version: 1, Time: time.Unix(1_800_000_000, 0)}
	}
	answers <- `{"FailedEntryCount":2,"Entries":[{"ErrorCode":"ThrottlingException","ErrorMessage":"slow down"},{"EventId":"1"},{"ErrorCode":"MalformedDetail","ErrorMessage":"no"}]}`
	errs := b.Publish(t.Context(), list)
	if len(errs) != 3 || fairlead.KindOf(errs[0]) != fairlead.KindUnavailable || errs[1] != nil || fairlead.KindOf(errs[2]) != fairlead.KindInternal {
		t.Errorf("got %v, want KindUnavailable, nil and KindInternal", errs)
	}
	answers <- `{"FailedEntryCount":0,"Entries":[{"EventId":"1"}]}`
	if errs := b.Publish(t.Context(), list); len(errs) != 3 || errs[0] == nil || errs[2] == nil {
		t.Errorf("a response for one of three entries: got %v, want errors", errs)
	}
	s.CloseClientConnections()
	s.Close()
	if errs := b.Publish(t.Context(), list); len(errs) != 3 || fairlead.KindOf(errs[1]) != fairlead.KindUnavailable {
		t.Errorf("without a server: got %v, want KindUnavailable", errs)
	}
}

func TestDecodeRefusesForeignEvents(t *testing.T) {
	const fine = `{"version":"0","id":"1","detail-type":"fairlead.job.queued","source":"fairlead","account":"1","time":"2026-11-21T03:04:05Z","region":"eu-central-1","resources":["job_1"],` +
		`"detail":{"v":1,"type":"fairlead.job.queued","subject":"job_1","version":3,"time":"2026-11-21T03:04:05.678Z"}}`
	e, err := eventbridge.Decode([]byte(fine))
	if err != nil || e.Subject != "job_1" || e.Version != 3 || e.Time.Nanosecond() != 678_000_000 {
		t.Errorf("Decode returns %+v, %v", e, err)
	}
	for name, change := range map[string][2]string{
		"no JSON":                 {`{`, ``},
		"another source":          {`"source":"fairlead"`, `"source":"aws.ec2"`},
		"a different detail-type": {`"detail-type":"fairlead.job.queued"`, `"detail-type":"fairlead.job.lost"`},
		"a newer version":         {`"v":1`, `"v":2`},
		"no subject":              {`"subject":"job_1",`, ``},
		"no detail":               {`"detail":`, `"other":`},
	} {
		if e, err := eventbridge.Decode([]byte(strings.Replace(fine, change[0], change[1], 1))); err == nil {
			t.Errorf("%s: Decode returns %+v, want an error", name, e)
		}
	}
}
