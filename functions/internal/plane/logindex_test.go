package plane_test

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

// kinesis sends a request to the server's Kinesis API. A stream takes the place of the function as
// the target of a log group: it gets the same deliveries, and the test can read them.
func (c *cloud) kinesis(action string, in, out any) {
	c.t.Helper()
	body := must(json.Marshal(in))(c.t)
	req := must(http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.endpoints["S3"], bytes.NewReader(body)))(c.t)
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "Kinesis_20131202."+action)
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20261121/"+c.region+"/kinesis/aws4_request, SignedHeaders=host, Signature=x")
	resp := must(http.DefaultClient.Do(req))(c.t)
	defer func() { _ = resp.Body.Close() }() // all was read
	text := must(io.ReadAll(resp.Body))(c.t)
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %s", action, text)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			c.t.Fatal(err)
		}
	}
}

// deliveries returns the deliveries of the subscriptions so far, as events that Lambda passes to
// the function.
func (c *cloud) deliveries(stream string) (list []any) {
	c.t.Helper()
	var at struct{ ShardIterator string }
	c.kinesis("GetShardIterator", map[string]string{"StreamName": stream, "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}, &at)
	var got struct{ Records []struct{ Data []byte } }
	c.kinesis("GetRecords", map[string]string{"ShardIterator": at.ShardIterator}, &got)
	for _, r := range got.Records {
		list = append(list, map[string]any{"awslogs": map[string]any{"data": base64.StdEncoding.EncodeToString(r.Data)}})
	}
	return list
}

// happened returns the events of the job that the bus sent to a subscriber, as a rule passes them
// to its function.
func (c *cloud) happened(job string) (list []json.RawMessage) {
	c.t.Helper()
	q := awssqs.NewFromConfig(c.config("EVENTBRIDGE"))
	for {
		out := must(q.ReceiveMessage(c.t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &c.eventsURL, MaxNumberOfMessages: 10, VisibilityTimeout: 600}))(c.t)
		for _, m := range out.Messages {
			if strings.Contains(*m.Body, job) {
				list = append(list, json.RawMessage(*m.Body))
			}
		}
		if len(out.Messages) == 0 {
			return list
		}
	}
}

// expireLog removes the pieces of a job's logs, as DynamoDB does after their time to live.
func (c *cloud) expireLog(job string) {
	c.t.Helper()
	if n := must(dynamotest.ExpireLog(c.t.Context(), c.config("DYNAMODB"), c.logTable, job))(c.t); n == 0 {
		c.t.Fatalf("the log of %s has no piece", job)
	}
}

func (c *cloud) logIndex() *config.LogIndex {
	return &config.LogIndex{Table: c.table, LogTable: c.logTable, LogArchive: c.archive, LogGroupPrefix: c.logGroups, LogLevel: "info"}
}

const shop = "fairlead: v1\nname: shop\ncomponents:\n  network: {type: terraform, source: ./network}\n"

// A step writes its log only to its install's log group. The function copies it to the log that
// clients read, also when deliveries are repeated or out of order. When the job has ended, clients
// read the log from the archive. The log of a step that died is marked truncated until its record
// shows that the log is complete.
func TestLogsAreCopiedFromCloudWatch(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	stream := "s-" + c.table
	c.kinesis("CreateStream", map[string]any{"StreamName": stream, "ShardCount": 1}, nil)
	first, token := c.admin()
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	must(first.PublishVersion(ctx, fairlead.DefaultOrg, "shop", must(app.Canonical())(t), map[string]string{"network": fmt.Sprintf("sha256:%064x", 1)}))(t)

	withKinesis := c.controlAPI()
	withKinesis.LogSubscriber = "arn:aws:kinesis:eu-central-1:123456789012:stream/" + stream
	person := must(client.New(front(t, c.start("controlapi", withKinesis)), token, client.Options{}))(t)
	must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "east"}))(t)
	install := must(person.CreateInstall(ctx, wire.CreateInstallRequest{Name: "acme", App: "shop", Runner: "east"}))(t)

	agent := must(client.New(served(t, c.runnerFront()), "", client.Options{}))(t)
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	enrolled := must(agent.Enrol(ctx, wire.EnrolRequest{Token: must(person.CreateEnrolment(ctx, "east"))(t).Token, PublicKey: pub}))(t)
	ch := must(agent.Challenge(ctx))(t)
	agent = agent.WithToken(must(agent.CreateSession(ctx, wire.SessionRequest{RunnerID: enrolled.RunnerID, Nonce: ch.Nonce, Instance: "i", Version: "1", Capacity: 1, PublicKey: pub,
		Signature: ed25519.Sign(key, wire.SessionStatement(ch.Nonce, enrolled.RunnerID, "i"))}))(t).Token)

	group := c.logGroups + install.ID
	index := c.start("logindex", c.logIndex())
	dispatch := c.start("dispatch", c.dispatch())
	// run plans in a step, writes the step's log, and returns the log.
	run := func(finish bool) (s joblog.Stream, whole []byte) {
		must(person.CreateDeployment(ctx, "acme", wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true}))(t)
		claim := must(agent.Claim(ctx, 10*time.Second, false))(t)
		started := must(agent.WithToken(claim.LaunchToken).Start(ctx, claim.Job, wire.StartRequest{StepID: "step-1234"}))(t)
		s = joblog.Stream{Job: claim.Job, Epoch: claim.Epoch}
		before := len(c.deliveries(stream))
		transport := cloudwatch.NewTransport(c.config("CLOUDWATCH_LOGS"), group, time.Now)
		for i := range 5 {
			line := fmt.Appendf(nil, "%d: aws_vpc.main: Still creating...\xff\n", i)
			if err := transport.Put(ctx, s, int64(len(whole)), line); err != nil {
				t.Fatal(err)
			}
			whole = append(whole, line...)
		}
		info := joblog.Info{Stream: s, Size: int64(len(whole)), CRC32: crc32.ChecksumIEEE(whole)}
		if err := transport.End(ctx, info); err != nil {
			t.Fatal(err)
		}
		if !finish {
			return s, whole
		}
		brought := c.deliveries(stream)[before:]
		slices.Reverse(brought)
		for _, d := range append(brought, brought...) {
			must(index.Invoke(ctx, d))(t)
		}
		if got := must(person.ReadJobLog(ctx, s.Job, s.Epoch, 0, 0))(t); string(got.Data) != string(whole) {
			t.Errorf("while it runs its log reads %q", got.Data)
		}
		if err := agent.WithToken(started.LeaseToken).Finish(ctx, claim.Job, wire.FinishRequest{Outcome: "failed", Reason: "tool-failed", Log: wire.LogEnd{Size: info.Size, CRC32: info.CRC32}}); err != nil {
			t.Fatal(err)
		}
		return s, whole
	}
	// over dispatches the job's events and archives the log.
	over := func(s joblog.Stream, whole []byte) {
		must(dispatch.Invoke(ctx, map[string]any{"Records": dynamodblocal.Records(t, c.endpoints["DYNAMODB"], c.table)}))(t)
		happened := c.happened(s.Job)
		if len(happened) < 4 {
			t.Fatalf("%d events of job %s, want at least 4", len(happened), s.Job)
		}
		for _, e := range append(happened, happened...) {
			must(index.Invoke(ctx, e))(t)
		}
		if got := must(person.ReadJobLog(ctx, s.Job, s.Epoch, 0, 0))(t); string(got.Data) != string(whole) || got.Truncated {
			t.Errorf("from the archive the log reads %q, truncated %t", got.Data, got.Truncated)
		}
		out := must(awss3.NewFromConfig(c.config("S3"), func(o *awss3.Options) { o.UsePathStyle = true }).ListObjectsV2(ctx,
			&awss3.ListObjectsV2Input{Bucket: &c.archive, Prefix: aws.String("logs/" + s.Job + "/")}))(t)
		if len(out.Contents) != 1 {
			t.Errorf("%d objects are archived of job %s", len(out.Contents), s.Job)
		}
	}
	ended, text := run(true)
	// The archive was out of order for a week: DynamoDB has removed the pieces of the log. Until it is archived, its
	// reader gets a problem that tells what to do.
	c.expireLog(ended.Job)
	if _, err := person.ReadJobLog(ctx, ended.Job, ended.Epoch, 0, 0); !client.HasCode(err, fairlead.CodeLogExpired) {
		t.Errorf("read of an expired log: %v", err)
	}
	over(ended, text)

	s, whole := run(false) // no delivery reaches the function, and the step dies
	first.Now = func() time.Time { return time.Now().Add(time.Minute) }
	must(first.Sweep(ctx))(t)
	if infos := must(first.Log.Streams(ctx, s.Job))(t); len(infos) != 1 || !infos[0].Ended || !infos[0].Truncated || infos[0].Size != 0 {
		t.Fatalf("the log of a step that died is %+v", infos)
	}
	must(first.CancelJob(ctx, fairlead.DefaultOrg, fairlead.JobID(s.Job)))(t) // otherwise the job is queued again
	over(s, whole)

	if err := person.ForgetInstall(ctx, "acme", true); err != nil {
		t.Fatal(err)
	}
	if err := cloudwatch.NewTransport(c.config("CLOUDWATCH_LOGS"), group, time.Now).Put(ctx, s, 0, []byte("x")); err == nil {
		t.Error("the log group outlives its install")
	}
}

// packed returns a delivery of a subscription with this JSON.
func packed(t *testing.T, text string) map[string]any {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"awslogs": map[string]any{"data": base64.StdEncoding.EncodeToString(b.Bytes())}}
}

// The alarm for late logs takes the age of lines from the function's log. The age counts from the
// time at which the line was written, so it contains the delay of CloudWatch Logs.
func TestLateLinesAreLogged(t *testing.T) {
	c := newCloud(t)
	f := c.start("logindex", c.logIndex())
	for _, age := range []time.Duration{time.Second, 90 * time.Second} {
		text := fmt.Sprintf(`{"messageType":"DATA_MESSAGE","logGroup":"%sins_1","logStream":"job_1/1","logEvents":[{"timestamp":%d,"message":"0 t x"},{"timestamp":%d,"message":"1 t x"}]}`,
			c.logGroups, time.Now().Add(-age).UnixMilli(), time.Now().UnixMilli())
		must(f.Invoke(t.Context(), packed(t, text)))(t)
		if late := strings.Contains(f.Output(), `"lag_ms":9`); late != (age > time.Minute) {
			t.Errorf("lines that are %s old: the log of the function is\n%s", age, f.Output())
		}
	}
}

// An invalid delivery is an error: Lambda repeats and then reports it. A valid delivery of another
// system is no error.
func TestLogIndexRefusesInvalidDeliveries(t *testing.T) {
	c := newCloud(t)
	f := c.start("logindex", c.logIndex())
	pack := func(text string) map[string]any { return packed(t, text) }
	for _, test := range []struct {
		name  string
		event any
		fails bool
	}{
		{"an invocation by hand", map[string]any{"hello": "there"}, true},
		{"no JSON object", "x", true},
		{"no base64", map[string]any{"awslogs": map[string]any{"data": "%%%"}}, true},
		{"no gzip", map[string]any{"awslogs": map[string]any{"data": "aGVsbG8="}}, true},
		{"an unpacked size above the limit", pack(strings.Repeat(" ", 40<<20)), true},
		{"an event of another source", json.RawMessage(`{"source":"aws.s3","detail-type":"x","detail":{}}`), true},
		{"a control message of the service", pack(`{"messageType":"CONTROL_MESSAGE","logGroup":"","logStream":"","logEvents":[]}`), false},
		{"another group", pack(`{"messageType":"DATA_MESSAGE","logGroup":"/aws/lambda/x","logStream":"job_1/1","logEvents":[{"message":"0 t x"}]}`), false},
		{"an unknown job", pack(`{"messageType":"DATA_MESSAGE","logGroup":"` + c.logGroups + `ins_1","logStream":"job_1/1","logEvents":[{"message":"0 t x"}]}`), false},
		{"an event of a job that has not ended", json.RawMessage(`{"source":"fairlead","detail-type":"fairlead.job.queued","detail":{"v":1,"type":"fairlead.job.queued","subject":"job_1","version":1,"time":"2026-11-21T00:00:00Z"}}`), false},
		{"an event of an unknown job that has ended", json.RawMessage(`{"source":"fairlead","detail-type":"fairlead.job.lost","detail":{"v":1,"type":"fairlead.job.lost","subject":"job_1","version":1,"time":"2026-11-21T00:00:00Z"}}`), true},
	} {
		if _, err := f.Invoke(t.Context(), test.event); (err != nil) != test.fails {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
