package plane_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awseb "github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	awskms "github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/functions/internal/runtimetest"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbridge"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/seal/kms/kmstest"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/elasticmq"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var (
	tables dynamodblocal.Server
	queues elasticmq.Server
	others moto.Server // S3, KMS without Ed25519 keys, EventBridge and the queues behind it
)

func TestMain(m *testing.M) {
	code := m.Run()
	tables.Stop()
	queues.Stop()
	others.Stop()
	os.Exit(code)
}

// cloud is an account with the resources of the stack.
type cloud struct {
	t                             testing.TB
	region                        string
	endpoints                     map[string]string // by the SDK's name of the service
	table, bucket, bus, eventsURL string
	logTable, archive, logGroups  string
	cancels                       string
	sealKey, signingKey, tokenKey string
	prefix                        string
	pub                           ed25519.PublicKey
	spareKey                      string // ARN of another signing key, which functions use only if their configuration names it
	sparePub                      ed25519.PublicKey
	signing                       map[string]ed25519.PrivateKey // the keys that sign, by ARN
}

// The Region of the control plane, and the one to which some tests move it.
const region, spareRegion = "eu-central-1", "eu-west-1"

func (c *cloud) config(service string) aws.Config {
	return aws.Config{Region: c.region, BaseEndpoint: aws.String(c.endpoints[service]), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newCloud(t testing.TB) *cloud {
	t.Helper()
	return newCloudIn(t, region)
}

// newCloudIn is newCloud in a Region. DynamoDB Local and moto keep their resources by Region, except for S3's. ElasticMQ knows
// no Regions, so the queues of each cloud have a prefix of their own.
func newCloudIn(t testing.TB, region string) *cloud {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	sparePub, spare, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	id := strings.ToLower(rand.Text())[:12]
	arn := "arn:aws:kms:" + region + ":123456789012:key/" + id
	c := &cloud{t: t, region: region, table: "t-" + id, logTable: "l-" + id, cancels: "c-" + id, bucket: "b-" + id, archive: "a-" + id, logGroups: "/fairlead-" + id + "/install/", bus: "e-" + id, prefix: "q-" + id + "-", pub: pub,
		signingKey: arn, spareKey: arn + "-spare", sparePub: sparePub, signing: map[string]ed25519.PrivateKey{arn: key, arn + "-spare": spare}}
	moto := others.Endpoint(t)
	c.endpoints = map[string]string{"DYNAMODB": tables.Endpoint(t), "SQS": queues.Endpoint(t), "S3": moto, "EVENTBRIDGE": moto, "CLOUDWATCH_LOGS": moto, "STS": moto,
		"KMS": kmstest.Start(t, moto, c.signing)}
	if err := dynamotest.CreateTable(t.Context(), c.config("DYNAMODB"), c.table); err != nil {
		t.Fatal(err)
	}
	if err := dynamotest.CreateLogTable(t.Context(), c.config("DYNAMODB"), c.logTable); err != nil {
		t.Fatal(err)
	}
	if err := dynamotest.CreateCancelTable(t.Context(), c.config("DYNAMODB"), c.cancels); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{c.bucket, c.archive} {
		s3 := awss3.NewFromConfig(c.config("S3"), func(o *awss3.Options) { o.UsePathStyle = true })
		must(s3.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: &name,
			CreateBucketConfiguration: &s3types.CreateBucketConfiguration{LocationConstraint: s3types.BucketLocationConstraint(region)}}))(t)
		must(s3.PutBucketVersioning(t.Context(), &awss3.PutBucketVersioningInput{Bucket: &name, VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled}}))(t)
	}
	k := awskms.NewFromConfig(c.config("KMS"))
	c.sealKey = *must(k.CreateKey(t.Context(), &awskms.CreateKeyInput{MultiRegion: aws.Bool(true)}))(t).KeyMetadata.Arn
	c.tokenKey = *must(k.CreateKey(t.Context(), &awskms.CreateKeyInput{KeySpec: kmstypes.KeySpecHmac256, KeyUsage: kmstypes.KeyUsageTypeGenerateVerifyMac, MultiRegion: aws.Bool(true)}))(t).KeyMetadata.Arn

	// The bus, with a subscriber to all of its events.
	eb, q := awseb.NewFromConfig(c.config("EVENTBRIDGE")), awssqs.NewFromConfig(c.config("EVENTBRIDGE"))
	c.eventsURL = *must(q.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &c.bus}))(t).QueueUrl
	queue := must(q.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &c.eventsURL,
		AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn}}))(t).Attributes["QueueArn"]
	must(eb.CreateEventBus(t.Context(), &awseb.CreateEventBusInput{Name: &c.bus}))(t)
	must(eb.PutRule(t.Context(), &awseb.PutRuleInput{Name: aws.String("all"), EventBusName: &c.bus, EventPattern: aws.String(`{"source":["fairlead"]}`), State: ebtypes.RuleStateEnabled}))(t)
	must(eb.PutTargets(t.Context(), &awseb.PutTargetsInput{Rule: aws.String("all"), EventBusName: &c.bus, Targets: []ebtypes.Target{{Id: aws.String("q"), Arn: &queue}}}))(t)
	return c
}

// admin returns the use cases of the control plane, and the token of its first user.
func (c *cloud) admin() (*control.Control, string) {
	c.t.Helper()
	first := must(plane.Control(c.t.Context(), c.config("DYNAMODB"), plane.Resources{Table: c.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey},
		slog.New(slog.DiscardHandler)))(c.t)
	token := identity.NewToken(identity.PrefixAPI)
	if err := first.RegisterToken(c.t.Context(), fairlead.DefaultOrg, "admin", token); err != nil {
		c.t.Fatal(err)
	}
	return first, token
}

// environ returns the environment of a function: the variables of the infrastructure and of Lambda.
// Only the endpoint of each service differs from AWS.
func (c *cloud) environ(cfg any) []string {
	c.t.Helper()
	list := append(c.endpointsOf(), "AWS_REGION="+c.region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true", "TMPDIR="+os.TempDir())
	for name, value := range must(config.Environ(cfg))(c.t) {
		list = append(list, name+"="+value)
	}
	return list
}

// endpointsOf returns the variables with which a program finds the account's services.
func (c *cloud) endpointsOf() (list []string) {
	for service, endpoint := range c.endpoints {
		list = append(list, "AWS_ENDPOINT_URL_"+service+"="+endpoint)
	}
	return list
}

// function returns the command of a function's deployed program, compiled for this machine.
func function(t testing.TB, name string) *exec.Cmd {
	t.Helper()
	return exec.Command(filepath.Join(program.Folder(t, "functions/...", "-tags=lambda.norpc"), name))
}

// start starts the function's program.
func (c *cloud) start(name string, cfg any) *runtimetest.Function {
	c.t.Helper()
	cmd := function(c.t, name)
	cmd.Env = c.environ(cfg)
	return runtimetest.Start(c.t, cmd, runtimetest.Timeout)
}

func (c *cloud) controlAPI() *config.ControlAPI {
	return &config.ControlAPI{URL: "https://fairlead.example", Table: c.table, LogTable: c.logTable, CancelTable: c.cancels, Blobs: c.bucket, LogArchive: c.archive, QueuePrefix: c.prefix,
		LogGroupPrefix: c.logGroups, LogRetention: 30, LogSubscriber: "arn:aws:lambda:eu-central-1:123456789012:function:logindex", ArtifactPrefix: "x/",
		PublisherRole: "arn:aws:iam::123456789012:role/publisher", SealKey: c.sealKey, SigningKey: c.signingKey, TokensKey: c.tokenKey, LogLevel: "info"}
}

func (c *cloud) sessionAPI() *config.SessionAPI {
	return &config.SessionAPI{URL: "https://fairlead.example", Table: c.table, QueuePrefix: c.prefix,
		SealKey: c.sealKey, SigningKey: c.signingKey, TokensKey: c.tokenKey, SessionRole: "arn:aws:iam::123456789012:role/session", LogLevel: "info"}
}

func (c *cloud) runnerAPI() *config.RunnerAPI {
	return &config.RunnerAPI{URL: "https://fairlead.example", Table: c.table, LogTable: c.logTable, CancelTable: c.cancels, Blobs: c.bucket, QueuePrefix: c.prefix, LogGroupPrefix: c.logGroups, ArtifactPrefix: "x/",
		SealKey: c.sealKey, SigningKey: c.signingKey, TokensKey: c.tokenKey, SessionRole: "arn:aws:iam::123456789012:role/session", BuilderRole: "arn:aws:iam::123456789012:role/builder", LogLevel: "info"}
}

func (c *cloud) dispatch() *config.Dispatch {
	return &config.Dispatch{CancelTable: c.cancels, QueuePrefix: c.prefix, EventBus: c.bus, LogLevel: "info"}
}

// sweep returns the configuration with a new queue.
func (c *cloud) sweep() *config.Sweep {
	name := c.prefix + "sweeps"
	made := must(awssqs.NewFromConfig(c.config("SQS")).CreateQueue(c.t.Context(), &awssqs.CreateQueueInput{QueueName: &name}))(c.t)
	return &config.Sweep{Table: c.table, LogTable: c.logTable, CancelTable: c.cancels, Blobs: c.bucket, QueuePrefix: c.prefix, Queue: *made.QueueUrl,
		Delays: []time.Duration{12 * time.Second, 24 * time.Second, 36 * time.Second, 48 * time.Second}, SealKey: c.sealKey, LogLevel: "info"}
}

// firstToken invokes the function for an operator's token, as IAM permits the vendor.
func firstToken(t *testing.T, f *runtimetest.Function) string {
	t.Helper()
	if answer, err := f.Invoke(t.Context(), map[string]string{"operator": "Not A Name"}); err == nil {
		t.Errorf("an invalid name got a token: %s", answer)
	}
	var o plane.Operator
	if err := json.Unmarshal(must(f.Invoke(t.Context(), map[string]string{"operator": "admin"}))(t), &o); err != nil || o.URL != "https://fairlead.example" {
		t.Fatalf("the control plane is at %q, %v", o.URL, err)
	}
	return o.Token
}

// front returns the URL of an API whose only function is f.
func front(t *testing.T, f *runtimetest.Function) string {
	h := runtimetest.Front(t, f)
	return served(t, gateway(t, func(string) http.Handler { return h }))
}

// runnerFront starts both functions of the Runner API and routes requests as API Gateway does.
func (c *cloud) runnerFront() http.Handler {
	c.t.Helper()
	strangers, runners := runtimetest.Front(c.t, c.start("sessionapi", c.sessionAPI())), runtimetest.Front(c.t, c.start("runnerapi", c.runnerAPI()))
	return gateway(c.t, func(path string) http.Handler {
		switch path {
		case wire.EnrolRunner.Path, wire.CreateChallenge.Path, wire.CreateSession.Path:
			return strangers
		}
		return runners
	})
}

// gateway serves the routes of the stack's API, each with its limits in the template. of returns the handler of a route.
func gateway(t testing.TB, of func(path string) http.Handler) http.Handler {
	t.Helper()
	var template struct {
		Resources struct {
			APIStage struct {
				Properties struct {
					RouteSettings map[string]struct{ ThrottlingRateLimit, ThrottlingBurstLimit float64 }
				}
			}
		}
	}
	if err := json.Unmarshal(must(os.ReadFile("../../../infra/control/testdata/control.template.json"))(t), &template); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	routes := template.Resources.APIStage.Properties.RouteSettings
	if len(routes) == 0 {
		t.Fatal("the template has no limits of routes")
	}
	for key, limits := range routes {
		path := strings.TrimSuffix(strings.TrimPrefix(key, "ANY "), "{proxy+}")
		mux.Handle(path, runtimetest.Throttle(of(path), limits.ThrottlingRateLimit, int(limits.ThrottlingBurstLimit)))
	}
	return mux
}

// served returns the URL of a handler.
func served(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// events receives what the bus sent to a subscriber until the queue is empty.
func (c *cloud) events() (list []events.Domain) {
	c.t.Helper()
	q := awssqs.NewFromConfig(c.config("EVENTBRIDGE"))
	for {
		out := must(q.ReceiveMessage(c.t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &c.eventsURL, MaxNumberOfMessages: 10, VisibilityTimeout: 600}))(c.t)
		for _, m := range out.Messages {
			list = append(list, must(eventbridge.Decode([]byte(*m.Body)))(c.t))
		}
		if len(out.Messages) == 0 {
			return list
		}
	}
}

// A person creates and checks a runner through the function controlapi. The runner enrols through
// the function sessionapi, and claims and runs the check through runnerapi. They share only the table,
// the queues and the keys. Another function publishes the events.
func TestFunctionsWorkTogether(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	function := c.start("controlapi", c.controlAPI())
	token := firstToken(t, function)
	url := front(t, function)
	person := must(client.New(url, token, client.Options{}))(t)
	if _, err := person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "for-all", Shared: true}); err != nil {
		t.Errorf("the first token is not an operator's: %v", err)
	}
	// An HTTP client gets no operator's token, wherever it puts the field.
	for _, target := range []string{"/v1/meta?operator=mallory", "/v1/apps?operator=mallory"} {
		res := must(http.Post(url+target, "application/json", strings.NewReader(`{"operator":"mallory"}`)))(t)
		if body := must(io.ReadAll(res.Body))(t); bytes.Contains(body, []byte("fla_")) || res.StatusCode < 400 {
			t.Errorf("a stranger asks %s for a token: %d %s", target, res.StatusCode, body)
		}
		res.Body.Close()
	}
	if _, err := person.WithToken("fla_no").ListRunners(ctx, client.ListOptions{}); !client.HasStatus(err, http.StatusUnauthorized) {
		t.Errorf("a stranger's token: %v", err)
	}
	runner := must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "east"}))(t)
	queues := awssqs.NewFromConfig(c.config("SQS"))
	made := must(queues.ListQueues(ctx, &awssqs.ListQueuesInput{QueueNamePrefix: aws.String(c.prefix + "runner-" + runner.ID)}))(t)
	if len(made.QueueUrls) != 2 {
		t.Fatalf("a new runner has the queues %s, want its own and that of its dead letters", made.QueueUrls)
	}
	for _, url := range made.QueueUrls {
		if tags := must(queues.ListQueueTags(ctx, &awssqs.ListQueueTagsInput{QueueUrl: &url}))(t).Tags; tags["fairlead-runner"] != runner.ID {
			t.Errorf("the queue %s of runner %s is tagged %v", url, runner.ID, tags)
		}
	}
	enrolment := must(person.CreateEnrolment(ctx, "east"))(t)

	agent := must(client.New(served(t, c.runnerFront()), "", client.Options{}))(t)
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	enrolled := must(agent.Enrol(ctx, wire.EnrolRequest{Token: enrolment.Token, PublicKey: pub}))(t)
	if len(enrolled.Keys) != 1 || !c.pub.Equal(ed25519.PublicKey(enrolled.Keys[0].PublicKey)) || enrolled.Registry != "123456789012.dkr.ecr.eu-central-1.amazonaws.com" {
		t.Errorf("enrolled as %+v, want the public half of the KMS key", enrolled)
	}
	ch := must(agent.Challenge(ctx))(t)
	session := must(agent.CreateSession(ctx, wire.SessionRequest{RunnerID: enrolled.RunnerID, Nonce: ch.Nonce, Instance: "i", Version: "1", Capacity: 1, PublicKey: pub,
		Signature: ed25519.Sign(key, wire.SessionStatement(ch.Nonce, enrolled.RunnerID, "i"))}))(t)
	agent = agent.WithToken(session.Token)

	checked := must(person.CheckRunner(ctx, "east"))(t) // the wake-up is sent before this call returns
	claim := must(agent.Claim(ctx, 10*time.Second, false))(t)
	if claim.Job != checked.ID {
		t.Fatalf("claimed %s, want %s", claim.Job, checked.ID)
	}
	started := must(agent.WithToken(claim.LaunchToken).Start(ctx, claim.Job, wire.StartRequest{StepID: "step-1234"}))(t)
	if _, err := events.Verify(ctx, started.Envelope, []ed25519.PublicKey{c.pub}, events.Expect{Runner: fairlead.RunnerID(enrolled.RunnerID), Job: fairlead.JobID(claim.Job),
		Epoch: claim.Epoch, Operation: "check", Operations: []string{"check"}}, time.Now()); err != nil {
		t.Errorf("the spec that KMS signed is refused: %v", err)
	}
	step := agent.WithToken(started.LeaseToken)
	log := []byte("hello\xff\x00 from afar\n") // not valid text: the event carries it as base64
	must(step.AppendLog(ctx, claim.Job, 0, log))(t)
	if err := step.Finish(ctx, claim.Job, wire.FinishRequest{Outcome: "succeeded", Log: wire.LogEnd{Size: int64(len(log)), CRC32: crc32.ChecksumIEEE(log)}}); err != nil {
		t.Fatal(err)
	}
	if j := must(person.GetJob(ctx, claim.Job))(t); j.State != "succeeded" {
		t.Errorf("the job is %s", j.State)
	}

	chunk := must(person.ReadJobLog(ctx, claim.Job, claim.Epoch, 0, 0))(t)
	if end := must(person.ReadJobLog(ctx, claim.Job, claim.Epoch, chunk.Next, 0))(t); string(chunk.Data) != string(log) || !end.Done {
		t.Errorf("the log reads %+v, then %+v", chunk, end)
	}

	// The records of the table's stream, in the form of a Lambda event.
	batch := map[string]any{"Records": dynamodblocal.Records(t, c.endpoints["DYNAMODB"], c.table)}
	out := must(c.start("dispatch", c.dispatch()).Invoke(ctx, batch))(t)
	if string(out) != `{"batchItemFailures":[]}` {
		t.Errorf("dispatch answers %s", out)
	}
	var types []string
	for _, e := range c.events() {
		if e.Type == control.UnreadableEvent {
			t.Errorf("published %+v", e)
		}
		if e.Subject == claim.Job {
			types = append(types, e.Type)
		}
	}
	if got := strings.Join(types, " "); got != "fairlead.job.queued fairlead.job.claimed fairlead.job.running fairlead.job.succeeded" {
		t.Errorf("events of the job: %s", got)
	}
}

// The control plane dies between the commit and the wake-up, so dispatch sends the wake-up. If
// dispatch cannot send a record, its answer names the record, and the record is delivered again.
func TestDispatchSendsLostWakeUps(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	r := plane.Resources{Table: c.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey}
	first := must(plane.Control(ctx, c.config("DYNAMODB"), r, slog.New(slog.DiscardHandler)))(t)
	if _, err := first.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "east"}, ""); err != nil {
		t.Fatal(err)
	}
	runner := must(first.Store.Runner(ctx, fairlead.DefaultOrg, "east"))(t).V
	first.Queue = lost{} // as if the process had died
	j := must(first.CheckRunner(ctx, control.User{Org: fairlead.DefaultOrg}, "east", ""))(t)

	records := dynamodblocal.Records(t, c.endpoints["DYNAMODB"], c.table)
	f := c.start("dispatch", c.dispatch())
	out := must(f.Invoke(ctx, map[string]any{"Records": records}))(t)
	var answer struct {
		Failures []struct{ ItemIdentifier string } `json:"batchItemFailures"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatal(err)
	}
	var last struct {
		Dynamodb struct{ SequenceNumber string }
	}
	if err := json.Unmarshal(records[len(records)-1], &last); err != nil {
		t.Fatal(err)
	}
	if len(answer.Failures) != 1 || answer.Failures[0].ItemIdentifier != last.Dynamodb.SequenceNumber {
		t.Fatalf("without a queue dispatch answers %s, want the record of the job, %s", out, last.Dynamodb.SequenceNumber)
	}

	q := must(plane.Queue(c.config("SQS"), c.prefix, true))(t)
	if err := q.Make(ctx, "runner-"+string(runner.ID), nil); err != nil {
		t.Fatal(err)
	}
	if out := must(f.Invoke(ctx, map[string]any{"Records": records[len(records)-1:]}))(t); string(out) != `{"batchItemFailures":[]}` {
		t.Errorf("for the repeated batch dispatch answers %s", out)
	}
	m := must(q.Receive(ctx, "runner-"+string(runner.ID), time.Minute, 10*time.Second))(t)
	if w := must(events.DecodeWake(m.Body))(t); w.Job != j.ID {
		t.Errorf("the wake-up is for %s, want %s", w.Job, j.ID)
	}
	if n := len(c.events()); n < 2 {
		t.Errorf("%d events, want the job's event twice: it is published again with the wake-up", n)
	}
}

// A record that this system did not write causes an event; it does not fail the batch.
func TestDispatchReportsUnreadableRecords(t *testing.T) {
	c := newCloud(t)
	f := c.start("dispatch", c.dispatch())
	for _, name := range []string{"unreadable.json", "stranger.json"} {
		event := json.RawMessage(must(os.ReadFile(filepath.Join("testdata", name)))(t))
		if out := must(f.Invoke(t.Context(), event))(t); string(out) != `{"batchItemFailures":[]}` {
			t.Errorf("%s: %s", name, out)
		}
	}
	got := c.events()
	if len(got) != 1 || got[0].Type != "fairlead.stream.unreadable" || got[0].Data["key"] != "JOB#job_1/JOB" {
		t.Errorf("published %+v", got)
	}
	if _, err := f.Invoke(t.Context(), "no event at all"); err == nil {
		t.Error("dispatch accepted an invalid event")
	}
}

// A malformed request is the caller's fault, not a failure of the function.
func TestMalformedRequestsGetAProblem(t *testing.T) {
	c := newCloud(t)
	f := c.start("controlapi", c.controlAPI())
	for _, test := range []struct {
		name           string
		event          string
		status         int
		problem, ctype string
	}{
		{"an invalid path", `{"version":"2.0","rawPath":"/v1/%zz","requestContext":{"http":{"method":"GET"},"domainName":"x"}}`, 400, "malformed-request", "application/problem+json"},
		{"an invalid method", `{"version":"2.0","rawPath":"/v1/apps","requestContext":{"http":{"method":"G T"},"domainName":"x"}}`, 400, "malformed-request", "application/problem+json"},
		{"invalid base64", `{"version":"2.0","rawPath":"/v1/apps","isBase64Encoded":true,"body":"!","requestContext":{"http":{"method":"GET"},"domainName":"x"}}`, 400, "malformed-request", "application/problem+json"},
		{"an unknown route", `{"version":"2.0","rawPath":"/v1/nothing","requestContext":{"http":{"method":"GET"},"domainName":"x"}}`, 404, "", "application/problem+json"},
		{"an empty event", `{}`, 404, "", "application/problem+json"},
		{"the document is served", `{"version":"2.0","rawPath":"/v1/openapi.json","requestContext":{"http":{"method":"GET"},"domainName":"x"}}`, 200, "", ""},
	} {
		out, err := f.Invoke(t.Context(), json.RawMessage(test.event))
		if err != nil {
			t.Errorf("%s: the function fails: %v", test.name, err)
			continue
		}
		var answer struct {
			StatusCode int               `json:"statusCode"`
			Headers    map[string]string `json:"headers"`
			Body       string            `json:"body"`
		}
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != test.status || !strings.Contains(answer.Body, test.problem) || test.ctype != "" && answer.Headers["Content-Type"] != test.ctype {
			t.Errorf("%s: %.300s", test.name, out)
		}
	}
}

func TestFailedStartNamesTheVariable(t *testing.T) {
	for _, test := range []struct {
		name    string
		environ []string
		want    string
	}{
		{"a variable is missing", []string{"FAIRLEAD_QUEUE_PREFIX=q"}, "FAIRLEAD_EVENT_BUS"},
		{"an unknown log level", []string{"FAIRLEAD_QUEUE_PREFIX=q", "FAIRLEAD_EVENT_BUS=b", "FAIRLEAD_CANCEL_TABLE=c", "FAIRLEAD_LOG_LEVEL=loud"}, "FAIRLEAD_LOG_LEVEL"},
		{"a prefix that SQS refuses", []string{"FAIRLEAD_QUEUE_PREFIX=q!", "FAIRLEAD_EVENT_BUS=b", "FAIRLEAD_CANCEL_TABLE=c"}, "q!"},
	} {
		cmd := function(t, "dispatch")
		cmd.Env = append(test.environ, "AWS_REGION=eu-central-1")
		f := runtimetest.Start(t, cmd, runtimetest.Timeout)
		if _, err := f.Invoke(t.Context(), nil); !errors.Is(err, runtimetest.ErrExited) {
			t.Errorf("%s: %v", test.name, err)
		}
		if !strings.Contains(f.Output(), test.want) || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: status %d, %s", test.name, cmd.ProcessState.ExitCode(), f.Output())
		}
	}
}

// lost is a queue that fails to send.
type lost struct{ queue.Queue }

func (lost) Send(context.Context, string, []byte, time.Duration) error {
	return errors.New("the process died")
}

// Others use up the limit of a route. API Gateway then answers 429 without the function, and without Retry-After. A client comes back by itself,
// and another route is not refused.
func TestClientsGoOnAfterTheGatewayRefusedThem(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	c := newCloud(t)
	h := c.runnerFront()
	crowd := func(path string) int {
		r := httptest.NewRequest(http.MethodPost, path, http.NoBody)
		r.Header.Set("X-Padding", strings.Repeat("a", runtimetest.MaxHeaders)) // counts for the limit, and starts no function
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	refused := make(chan http.Header, 1)
	agent := must(client.New(served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		if h.ServeHTTP(answer, r); answer.Code == http.StatusTooManyRequests {
			select {
			case refused <- answer.Header():
			default:
			}
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})), "", client.Options{}))(t)
	done := make(chan http.Header, 1)
	go func() {
		for t.Context().Err() == nil {
			select {
			case header := <-refused:
				done <- header
				return
			default:
				crowd(wire.CreateChallenge.Path)
			}
		}
	}()
	for range 1000 {
		if ch, err := agent.Challenge(t.Context()); err != nil || ch.Nonce == "" {
			t.Fatalf("a client among a crowd: %+v, %v", ch, err)
		}
		select {
		case header := <-done:
			if header.Get("Retry-After") != "" || header.Get("Apigw-Requestid") == "" {
				t.Errorf("the client was refused with %v, want an answer of API Gateway", header)
			}
			if code := crowd(wire.CreateSession.Path); code != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("while one route is refused, another is answered with %d", code)
			}
			return
		default: // the client was quicker than the crowd
		}
	}
	t.Error("the gateway has refused none of 1,000 requests among a crowd")
}
