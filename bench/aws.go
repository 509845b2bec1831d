package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// lambdaMS is the assumed time of a function for a request that does not wait and whose
// time is not counted on the emulated stacks, in milliseconds: the CPU time of the
// function's code, and two or three calls of the table with 5 ms each.
const lambdaMS = 30

// tally counts the requests to the APIs, the queue, the blobs and the signer, but not to
// the table. Safe for concurrent use.
type tally struct {
	mu       sync.Mutex
	requests map[string]int // HTTP requests by method and path
	held     time.Duration  // total time of the requests that waited
	queue    int            // requests to the queue
	puts     int            // writes of blobs
	gets     int            // reads of blobs
	signed   int            // signatures
	sent     int            // bytes of the responses
	logged   int            // bytes that the functions log
}

func newTally() *tally { return &tally{requests: map[string]int{}} }

func (t *tally) add(n *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
}

// reset sets all counts to 0.
func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.held, t.queue, t.puts, t.gets, t.signed, t.sent, t.logged = map[string]int{}, 0, 0, 0, 0, 0, 0, 0
}

// usage returns the counts together with u, the units of the table.
func (t *tally) usage(u enginetest.Units) usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := usage{Writes: u.Write(), Reads: u.Read, Queue: float64(t.queue), Puts: float64(t.puts), Gets: float64(t.gets), KMS: float64(t.signed)}
	for _, n := range t.requests {
		out.Requests += float64(n)
	}
	out.OutGB = (float64(t.sent) + out.Requests*headerBytes) / 1e9
	out.LogGB = (float64(t.logged) + out.Requests*accessLogBytes) / 1e9
	out.GBSeconds = (out.Requests*lambdaMS/1000 + t.held.Seconds()) * functionMB / 1024
	return out
}

// handler counts the requests to next. It assumes that a request of more than 200 ms has
// waited, and adds its time to held.
func (t *tally) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		next.ServeHTTP(&countedWriter{w, t}, r)
		took := time.Since(began)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.requests[r.Method+" "+shape(r.URL.Path)]++
		if took > 200*time.Millisecond {
			t.held += took
		}
	})
}

// Write makes tally count the bytes of a log. Each call is an event of CloudWatch Logs.
func (t *tally) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logged += len(p) + eventBytes
	return len(p), nil
}

// countedWriter counts the bytes of a response.
type countedWriter struct {
	http.ResponseWriter
	t *tally
}

func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *countedWriter) Write(p []byte) (int, error) {
	w.t.mu.Lock()
	w.t.sent += len(p)
	w.t.mu.Unlock()
	return w.ResponseWriter.Write(p)
}

// The sizes of what AWS adds, in bytes.
const (
	eventBytes     = 26               // CloudWatch Logs bills for each event in addition to its message
	accessLogBytes = 250 + eventBytes // a line of the HTTP API's access log with the format of infra/control
	headerBytes    = 400              // the headers of a response
)

// shape returns the path with * in place of the identifiers of objects.
func shape(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.ContainsAny(p, "_:") {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}

// countedQueue counts the requests that SQS would get. A receive is one request, because
// a long poll lasts at most 20 s.
type countedQueue struct {
	queue.Queue
	t *tally
}

func (q countedQueue) Send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	q.t.add(&q.t.queue)
	return q.Queue.Send(ctx, name, body, delay)
}

func (q countedQueue) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	q.t.add(&q.t.queue)
	return q.Queue.Receive(ctx, name, hide, wait)
}

func (q countedQueue) DeadLetters(ctx context.Context, name string, most int) ([]queue.Message, error) {
	q.t.add(&q.t.queue)
	return q.Queue.DeadLetters(ctx, name, most)
}

func (q countedQueue) Delete(ctx context.Context, name, receipt string) error {
	q.t.add(&q.t.queue)
	return q.Queue.Delete(ctx, name, receipt)
}

type countedBlobs struct {
	blob.Store
	t *tally
}

func (b countedBlobs) Put(ctx context.Context, key string, data []byte) error {
	b.t.add(&b.t.puts)
	return b.Store.Put(ctx, key, data)
}

func (b countedBlobs) Get(ctx context.Context, key string) ([]byte, error) {
	b.t.add(&b.t.gets)
	return b.Store.Get(ctx, key)
}

// measureAWS calculates the AWS usage of a job and of an idle runner from what BenchmarkUsage and BenchmarkJobLog count on the
// emulated stacks, and counts what the sweep does for a runner.
func measureAWS(ctx context.Context, b *bench) error {
	counted, err := b.readStacks()
	if err != nil {
		return err
	}
	var out taken
	if err := logUsage(b, counted, &out); err != nil {
		return err
	}
	renewal, err := of(counted.Idle, sessionsRoute)
	if err != nil {
		return err
	}
	check, err := watchHour(ctx)
	if err != nil {
		return err
	}
	if out.Claim, err = claimAtAPI(ctx, b); err != nil {
		return err
	}
	if out.Minute, err = counted.minute(control.Metered().Heartbeat); err != nil {
		return err
	}
	if out.Warm, err = counted.warmSecond(); err != nil {
		return err
	}
	sweep, err := of(counted.Idle, "sweep")
	if err != nil {
		return err
	}
	out.Hour = usage{Queue: receivesAnHour}.plus(renewalsAnHour, renewal).plus(1/control.MaxSessionAge.Hours(), newSession(renewal)).plus(1, check)
	out.Job, out.Month = counted.job(), atRest(sweep)

	if err := b.writeCounted(out); err != nil {
		return err
	}
	b.set("aws_idle_install_dollars", out.idle())
	b.set("aws_jobs_dollars", out.jobs())
	b.set("aws_job_dollars", cost(out.Job.plus(typical(1).minutes, out.Minute)))
	var tables strings.Builder
	printCosts(&tables, out)
	fmt.Fprintln(&tables)
	printQuotas(&tables, out)
	b.note("%s", strings.ReplaceAll(tables.String(), "\n", "\n  "))
	return b.checkGoals("aws_idle_install_dollars", "aws_jobs_dollars")
}

func (b *bench) writeCounted(out taken) error {
	if b.countedFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.countedFile, append(text, '\n'), 0o644)
}

// The requests of a runner in a customer's stack: a long poll lasts 20 s, at SQS and at the
// API, and a session lasts 15 minutes.
const (
	claimFor       = 20 * time.Second
	receivesAnHour = float64(time.Hour / claimFor)
	renewalsAnHour = 3600. / (0.64 * 15 * 60) // between 62 and 66 % of 15 minutes
)

// newSession returns what a new session needs more than a renewal: a request for its challenge, which reads and writes nothing, and a
// transaction of three records in place of one write.
func newSession(renewal usage) usage {
	const records, each = 3, 2 // a transaction costs two units for each record
	return usage{Requests: 1, GBSeconds: renewal.GBSeconds, Writes: records*each - 1, Reads: records * each, LogGB: renewal.LogGB, OutGB: renewal.OutGB}
}

// claimAtAPI returns the usage of a claim of an idle runner at the API.
func claimAtAPI(ctx context.Context, b *bench) (claim usage, err error) {
	meter, t := enginetest.Meter(enginetest.Memory()), newTally()
	p, err := startMetered(ctx, b, meter, t)
	if err != nil {
		return claim, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	c := p.control
	made, err := c.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "idle"}, "")
	if err != nil {
		return claim, err
	}
	token, _, err := c.CreateEnrolment(ctx, control.User{Org: fairlead.DefaultOrg}, made.Name)
	if err != nil {
		return claim, err
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return claim, err
	}
	if _, err := c.Enrol(ctx, token, pub); err != nil {
		return claim, err
	}
	nonce := c.NewChallenge()
	s, err := p.Client.CreateSession(ctx, wire.SessionRequest{RunnerID: string(made.ID), Nonce: nonce, Instance: "idle", Version: "bench", Capacity: 4, PublicKey: pub,
		Signature: ed25519.Sign(key, wire.SessionStatement(nonce, string(made.ID), "idle")), Report: &wire.SessionHeartbeat{Capacity: 4, Running: []string{}}})
	if err != nil {
		return claim, err
	}
	meter.Reset()
	t.reset()
	if _, err := p.Client.WithToken(s.Token).Claim(ctx, claimFor, false); !errors.Is(err, client.ErrNoWork) {
		return claim, fmt.Errorf("claim of an idle runner: %w, want no work", err)
	}
	return t.usage(meter.Total()), nil
}

// The numbers of an idle month. A schedule invokes the sweep each minute. The sweep
// invokes itself four more times by messages that it sends in one request.
const (
	minutesAMonth  = monthHours * 60
	messages       = 4 // the sweep sends this number of messages each minute
	polls          = 5 // long polls that Lambda always keeps open for an idle queue
	pollsAMinute   = polls * 60 / 20
	functionQueues = 2 // queues that invoke functions: the sweep's and the webhooks'
)

// atRest returns the usage of an idle control plane in a month: its five keys, its alarms, the metrics behind them that are not
// AWS's own, the dashboard, the sweep, and Lambda's receives, which AWS bills even without a message.
func atRest(sweep usage) usage {
	const (
		sweeps = (1 + messages) * minutesAMonth
		// Each minute has one send, which sweep has. Each message has one delete, and one receive that ends when the message arrives.
		starts    = 2 * messages * minutesAMonth
		dashboard = 3
	)
	u := usage{}.plus(sweeps, sweep)
	u.Queue += starts + functionQueues*pollsAMinute*minutesAMonth
	u.Dollars = 5 + 52*0.10 + 8*0.30 + dashboard
	return u
}
