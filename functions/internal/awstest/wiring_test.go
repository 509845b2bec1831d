package awstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/functions/internal/runtimetest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

// jsonText is a JSON property that an SDK takes as a string.
type jsonText struct {
	V json.RawMessage `json:"v"`
}

func (j jsonText) string() string { return string(j.V) }

// acquire returns an idle environment of the function. If no environment is idle,
// it starts a new environment, unless the number of existing environments has
// reached the constant environments. At that limit it waits for an idle
// environment.
func (f *function) acquire(t testing.TB) *runtimetest.Function {
	select {
	case e := <-f.idle:
		return e
	default:
	}
	f.mu.Lock()
	if f.started < environments {
		f.started++
		f.mu.Unlock()
		cmd := exec.Command(f.program.Path)
		cmd.Env = slices.Clone(f.program.Env)
		return runtimetest.Start(t, cmd, f.timeout)
	}
	f.mu.Unlock()
	return <-f.idle
}

// release returns an environment. If its process has exited, acquire may start
// another one, as Lambda does.
func (f *function) release(e *runtimetest.Function) {
	select {
	case <-e.Exited():
		f.mu.Lock()
		f.started--
		f.mu.Unlock()
	default:
		f.idle <- e
	}
}

// invoke invokes the function with an event.
func (a *account) invoke(ctx context.Context, name string, event any) ([]byte, error) {
	return environment{a.t, a.functions[name], a.meter}.Invoke(ctx, event)
}

// environment invokes a function in one of its environments.
type environment struct {
	t     testing.TB
	f     *function
	meter *meter // nil: none
}

// Invoke implements runtimetest.Invoker.
func (e environment) Invoke(ctx context.Context, event any) ([]byte, error) {
	one := e.f.acquire(e.t)
	defer e.f.release(one)
	if e.meter == nil {
		return one.Invoke(ctx, event)
	}
	return e.meter.invoke(e.f.name, event, one, func(trace string) ([]byte, error) { return one.InvokeTraced(ctx, trace, event) })
}

// front serves the HTTP API: each route of the template invokes its function, with the limits of the
// template's stage.
func (a *account) front() http.Handler {
	mux := http.NewServeMux()
	stage := a.tmpl.Resources[a.tmpl.ofType("AWS::ApiGatewayV2::Stage")[0]].Properties
	for _, id := range a.tmpl.ofType("AWS::ApiGatewayV2::Route") {
		p := a.tmpl.Resources[id].Properties
		method, path, _ := strings.Cut(a.text(p["RouteKey"]), " ")
		prefix, greedy := strings.CutSuffix(path, "{proxy+}")
		target := a.text(p["Target"]) // integrations/ and the integration's Ref
		if method != "ANY" || strings.Contains(prefix, "{") || greedy != strings.HasSuffix(prefix, "/") {
			a.t.Fatalf("the front does not support the route %s %s, only ANY with a path or with {proxy+}", method, path)
		}
		f := a.functions[target[strings.LastIndex(target, "-")+1:]]
		limits := as[struct{ ThrottlingRateLimit, ThrottlingBurstLimit float64 }](a.resolver, stage["RouteSettings"].(map[string]any)[a.text(p["RouteKey"])].(map[string]any))
		mux.Handle(prefix, runtimetest.Throttle(runtimetest.Front(a.t, environment{a.t, f, a.meter}), limits.ThrottlingRateLimit, int(limits.ThrottlingBurstLimit)))
	}
	return mux
}

// pumps starts the event sources of Lambda and the schedules of EventBridge. stop
// stops them and waits for them.
func (a *account) pumps() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, id := range a.tmpl.ofType("AWS::Lambda::EventSourceMapping") {
		p := a.tmpl.Resources[id].Properties
		source, target := a.text(p["EventSourceArn"]), a.text(p["FunctionName"])
		name := target[strings.LastIndex(target, "-")+1:]
		if to, ok := p["DestinationConfig"].(map[string]any); ok {
			a.may(name, a.text(to["OnFailure"].(map[string]any)["Destination"]), "sqs:SendMessage")
		}
		if strings.HasPrefix(source, "arn:aws:sqs:") {
			a.may(name, source, "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
			running.Go(func() { a.pumpQueue(ctx, a.urlOf(source), name, int(p["BatchSize"].(float64))) })
			continue
		}
		a.may(name, source, "dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
		a.may(name, "*", "dynamodb:ListStreams")
		running.Go(func() { a.pumpStream(ctx, a.tableOf(source), name, p) })
	}
	for _, id := range a.tmpl.ofType("AWS::Events::Rule") {
		p := a.tmpl.Resources[id].Properties
		for _, target := range a.value(p["Targets"]).([]any) {
			arn := target.(map[string]any)["Arn"].(string)
			if !strings.HasPrefix(arn, "arn:aws:lambda:") {
				continue
			}
			name := arn[strings.LastIndex(arn, "-")+1:]
			if rate, scheduled := p["ScheduleExpression"]; scheduled {
				every, known := map[string]time.Duration{"rate(1 minute)": time.Minute}[a.text(rate)]
				if !known {
					a.t.Fatalf("this test does not support the schedule %v", rate)
				}
				running.Go(func() { a.tick(ctx, name, every) })
				continue
			}
			url := a.queueForRule(id)
			running.Go(func() { a.pumpEvents(ctx, url, name) })
		}
	}
	running.Go(func() { a.pumpLogs(ctx) })
	return func() { cancel(); running.Wait() }
}

// each calls do until ctx ends, and pauses after each call that returned false.
func each(ctx context.Context, pause time.Duration, do func() bool) {
	for ctx.Err() == nil {
		if do() {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// tick invokes a function at once and then by its schedule.
func (a *account) tick(ctx context.Context, name string, every time.Duration) {
	each(ctx, every, func() bool {
		if _, err := a.invoke(ctx, name, map[string]any{"source": "aws.events", "detail-type": "Scheduled Event"}); err != nil && ctx.Err() == nil {
			a.t.Logf("%s: %v", name, err) // EventBridge retries; here the next tick does
		}
		return false
	})
}

// tableOf returns the name of the table with the stream, which can be one that was restored.
func (a *account) tableOf(stream string) string {
	_, name, _ := strings.Cut(stream, ":table/")
	name, _, ok := strings.Cut(name, "/stream/")
	if !ok {
		a.t.Fatalf("%s is no stream of a table", stream)
	}
	return name
}

func (a *account) urlOf(arn string) string {
	for _, id := range a.tmpl.ofType("AWS::SQS::Queue") {
		if a.made[id].attr["Arn"] == arn {
			return a.made[id].ref
		}
	}
	a.t.Fatalf("no queue has the ARN %s", arn)
	return ""
}

// pumpStream is the event source of a table's stream. It delivers the records that
// match a filter in batches, in order; deliver retries.
func (a *account) pumpStream(ctx context.Context, table, name string, p map[string]any) {
	stream := dynamodblocal.Stream{Endpoint: a.endpoints["DYNAMODB"], Table: table}
	filters := patterns(a.t, p["FilterCriteria"])
	size, retries := int(p["BatchSize"].(float64)), int(p["MaximumRetryAttempts"].(float64))
	each(ctx, 50*time.Millisecond, func() bool {
		records, err := stream.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				a.t.Errorf("read the stream of %s: %v", table, err)
			}
			return false
		}
		records = slices.DeleteFunc(records, func(r json.RawMessage) bool { return !matchesAny(filters, r) })
		for batch := range slices.Chunk(records, size) {
			a.deliver(ctx, name, batch, retries)
		}
		return len(records) > 0
	})
}

// deliver invokes the function with a batch until all records are processed. If the
// function reports a record as failed, this record and all later records are
// delivered again. If an invocation fails, deliver splits its batch into two halves.
// If the last retry fails, the test fails.
func (a *account) deliver(ctx context.Context, name string, batch []json.RawMessage, retries int) {
	for len(batch) > 0 && ctx.Err() == nil {
		out, err := a.invoke(ctx, name, map[string]any{"Records": batch})
		var answer struct {
			Failures []struct{ ItemIdentifier string } `json:"batchItemFailures"`
		}
		if err == nil {
			err = json.Unmarshal(out, &answer)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && len(answer.Failures) == 0:
			return
		case retries == 0:
			a.t.Errorf("%s failed for %d records after the last retry: %s, %v", name, len(batch), out, err)
			return
		case err != nil && len(batch) > 1: // BisectBatchOnFunctionError
			a.deliver(ctx, name, batch[:len(batch)/2], retries-1)
			a.deliver(ctx, name, batch[len(batch)/2:], retries-1)
			return
		case err == nil:
			// Lambda repeats the batch from the first failed record, in order.
			first := slices.IndexFunc(batch, func(r json.RawMessage) bool {
				return slices.ContainsFunc(answer.Failures, func(f struct{ ItemIdentifier string }) bool { return f.ItemIdentifier == sequence(r) })
			})
			if first < 0 {
				a.t.Errorf("%s reports failed records that were not in its batch: %s", name, out)
				return
			}
			batch = batch[first:]
		}
		retries--
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func sequence(r json.RawMessage) string {
	var record struct {
		Dynamodb struct{ SequenceNumber string } `json:"dynamodb"`
	}
	_ = json.Unmarshal(r, &record) // an unreadable record has the sequence number "", which matches no failure
	return record.Dynamodb.SequenceNumber
}

// pumpQueue is the event source of a queue. It deletes the messages that the function
// processed. The other messages become visible again.
func (a *account) pumpQueue(ctx context.Context, queue, name string, size int) {
	client := sqs.NewFromConfig(a.config("EVENTBRIDGE"))
	each(ctx, 100*time.Millisecond, func() bool {
		got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: int32(min(size, 10)),
			MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{sqstypes.MessageSystemAttributeNameAll}})
		if err != nil || len(got.Messages) == 0 {
			return false
		}
		var records []map[string]any
		for _, m := range got.Messages {
			records = append(records, map[string]any{"messageId": *m.MessageId, "receiptHandle": *m.ReceiptHandle, "body": *m.Body, "attributes": m.Attributes,
				"messageAttributes": map[string]any{}, "eventSource": "aws:sqs", "awsRegion": region})
		}
		out, err := a.invoke(ctx, name, map[string]any{"Records": records})
		var answer struct {
			Failures []struct{ ItemIdentifier string } `json:"batchItemFailures"`
		}
		if err != nil || json.Unmarshal(out, &answer) != nil {
			return true // all messages become visible again
		}
		a.functions[name].fromQueue.Add(1)
		for _, m := range got.Messages {
			if !slices.ContainsFunc(answer.Failures, func(f struct{ ItemIdentifier string }) bool { return f.ItemIdentifier == *m.MessageId }) {
				_, _ = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: m.ReceiptHandle}) // after an error the message comes again
			}
		}
		return true
	})
}

// queueForRule creates a queue that gets the events of a rule whose target is a
// function, because moto does not invoke functions. It returns the queue's URL.
func (a *account) queueForRule(rule string) string {
	a.t.Helper()
	name := a.id + "-" + rule + "-events"
	out, err := sqs.NewFromConfig(a.config("EVENTBRIDGE")).CreateQueue(a.t.Context(), &sqs.CreateQueueInput{QueueName: &name})
	a.ok("create queue "+name, err)
	bus := a.text(a.tmpl.Resources[rule].Properties["EventBusName"])
	_, err = eventbridge.NewFromConfig(a.config("EVENTBRIDGE")).PutTargets(a.t.Context(), &eventbridge.PutTargetsInput{Rule: aws.String(a.made[rule].ref), EventBusName: &bus,
		Targets: []ebtypes.Target{{Id: aws.String("events"), Arn: aws.String("arn:aws:sqs:" + region + ":" + accountID + ":" + name)}}})
	a.ok("add a target to rule "+rule, err)
	return *out.QueueUrl
}

// pumpEvents invokes a function with each event in the queue, at most three times an
// event.
func (a *account) pumpEvents(ctx context.Context, queue, name string) {
	client := sqs.NewFromConfig(a.config("EVENTBRIDGE"))
	each(ctx, 100*time.Millisecond, func() bool {
		got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 1})
		if err != nil || len(got.Messages) == 0 {
			return false
		}
		for attempt := 1; ; attempt++ {
			_, err := a.invoke(ctx, name, json.RawMessage(*got.Messages[0].Body))
			if err == nil || ctx.Err() != nil {
				break
			}
			if attempt == 3 {
				a.t.Errorf("%s failed %d times for one event: %v: %s", name, attempt, err, *got.Messages[0].Body)
				break
			}
		}
		_, _ = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: got.Messages[0].ReceiptHandle})
		return true
	})
}

// gate is a proxy before a server: it counts the requests and injects the faults of
// a test.
type gate struct {
	url     string
	handler http.Handler // serves also requests to the service's own host name
	mu      sync.Mutex
	seen    map[string]int // requests by operation
	do      func(r *http.Request, body []byte) fault
}

// count returns the number of requests for an operation.
func (g *gate) count(operation string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[operation]
}

var keyID = regexp.MustCompile(`Credential=[^/]+/`)

// operation returns the name of the AWS operation, or the method for S3.
func operation(r *http.Request) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return target[strings.LastIndex(target, ".")+1:]
	}
	return r.Method
}

// fault is a fault of one request.
type fault int

const (
	none      fault = iota
	throttled       // the gate refuses the request, as a throttling service does
	twice           // the server gets the request twice
)

// set sets the function that selects the fault of a request; nil: no faults.
func (g *gate) set(do func(*http.Request, []byte) fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.do = do
}

// makeGates puts a gate before each server.
func (a *account) makeGates() map[string]*gate {
	all := map[string]*gate{}
	for service, endpoint := range a.endpoints {
		u, err := url.Parse(endpoint)
		a.ok("read "+endpoint, err)
		other, err := url.Parse(a.moto)
		a.ok("read "+a.moto, err)
		g, proxy, stack := &gate{seen: map[string]int{}}, httputil.NewSingleHostReverseProxy(u), httputil.NewSingleHostReverseProxy(other)
		proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				a.t.Logf("%s: %v", service, err)
			}
			w.WriteHeader(http.StatusBadGateway)
		}
		stack.ErrorHandler = proxy.ErrorHandler
		g.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			g.mu.Lock()
			do := g.do
			g.seen[operation(r)]++
			g.mu.Unlock()
			if service != "ECR" { // ECR needs the key to find the caller
				// The servers keep separate data for each key and check no signature.
				r.Header.Set("Authorization", keyID.ReplaceAllString(r.Header.Get("Authorization"), "Credential=test/"))
			}
			f := none
			if do != nil {
				f = do(r, body)
			}
			proxy := proxy
			if service == "SQS" && a.isInMoto(body) {
				proxy = stack
			}
			switch f {
			case throttled:
				refuse(w, service)
				return
			case none:
				if service == "CLOUDWATCH_LOGS" {
					body = a.redirectSubscription(r, body)
				}
			case twice:
				again := r.Clone(r.Context())
				again.Body = io.NopCloser(bytes.NewReader(body))
				proxy.ServeHTTP(httptest.NewRecorder(), again)
			}
			if a.meter != nil {
				a.meter.call(service, w, r, body, proxy)
				return
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			proxy.ServeHTTP(w, r)
		})
		g.handler, err = a.guard.Handler(service, g.handler)
		a.ok("guard "+service, err)
		s := httptest.NewServer(g.handler)
		a.t.Cleanup(s.Close)
		g.url = s.URL
		all[service] = g
	}
	return all
}

// runnerQueues is the prefix of the names of the runners' queues.
const runnerQueues = "fairlead-test-"

// isInMoto reports whether a request to SQS is for a queue in moto: a queue of the stack, like
// the bus that sends to it, whose URL begins with moto's, or a queue of an app.
func (a *account) isInMoto(request []byte) bool {
	var in struct{ QueueUrl, QueueName string }
	if json.Unmarshal(request, &in) != nil {
		return false
	}
	name := in.QueueName + in.QueueUrl[strings.LastIndex(in.QueueUrl, "/")+1:]
	return strings.HasPrefix(in.QueueUrl, a.moto+"/") || !strings.HasPrefix(name, runnerQueues)
}

// refuse answers as the service does when it throttles.
func refuse(w http.ResponseWriter, service string) {
	switch service {
	case "S3":
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
	default:
		code := map[string]string{"DYNAMODB": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "SQS": "com.amazonaws.sqs#RequestThrottled"}[service]
		if code == "" {
			code = "ThrottlingException"
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		text := `{"__type":"` + code + `","message":"Rate exceeded"}`
		w.Header().Set("X-Amzn-ErrorType", code)
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(text))), 10)) // the SDK verifies it for DynamoDB
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, text)
	}
}
