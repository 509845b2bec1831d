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

// lambdaMS is the billed time of a function for a request that does not wait, in
// milliseconds. It is the CPU time of the function's code, and two or three calls of the
// table with 5 ms each. A function of 256 MB gets a seventh of a core.
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

// measureAWS counts the AWS usage of a job and calculates the usage of an idle runner.
func measureAWS(ctx context.Context, b *bench) (err error) {
	meter, t := enginetest.Meter(enginetest.Memory()), newTally()
	p, err := startMetered(ctx, b, meter, t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startAgent(ctx, "local", 0, b.tool); err != nil {
		return err
	}
	var out taken
	if err := p.publish(ctx, b.path("examples", "shop")); err != nil {
		return err
	}
	if err := runCommand(p.cli(ctx, "install", "create", "shop", "--app", "shop", "--input-file", b.path("examples/shop/demo.inputs.yaml"))); err != nil {
		return err
	}
	meter.Reset()
	t.reset()
	if err := deployAPI(ctx, p.Client, "shop"); err != nil {
		return err
	}
	const jobs = 8 // a plan and an apply for each of four components
	whole := t.usage(meter.Total())
	out.Job = usage{}.plus(1./jobs, whole)
	// Each commit writes records to the table's stream. In the worst case each commit
	// invokes a function. logUsage counts the functions of the job's log.
	out.Job.Invokes = float64(meter.Usage()[enginetest.OpCommitMany].Calls+meter.Usage()[enginetest.OpCommitOne].Calls) / jobs
	out.Job.Events = 3 // the job has started, the job has ended, and a share of the deployment's events
	out.Job.GBSeconds += out.Job.Invokes * lambdaMS / 1000 * functionMB / 1024
	for path, n := range t.requests {
		b.note("%6d  %s", n, path)
	}

	if err := logUsage(b, &out); err != nil {
		return err
	}
	if out.Hour, out.Claim, err = idleHour(ctx, b); err != nil {
		return err
	}
	// A running job renews its lease four times a minute, and looks for its cancel marker every
	// two seconds with half a read unit. Its agent sends a heartbeat every 18 s. Each renewal also
	// looks for a follower of the log, for half a read unit.
	const (
		renewals = 4
		looks    = 30
	)
	beats := time.Minute.Seconds() / p.control.HeartbeatEvery().Seconds()
	calls := renewals + beats
	out.Minute = usage{Requests: calls, GBSeconds: calls * lambdaMS / 1000. * functionMB / 1024, Writes: calls, Reads: 2*calls + renewals/2. + looks/2.,
		LogGB: calls * accessLogBytes / 1e9, OutGB: calls * (headerBytes + 150) / 1e9}
	out.Month = atRest()

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
	return nil
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
	renewalsAnHour = 3600. / (0.63 * 15 * 60) // between 60 and 66 % of 15 minutes
)

// idleHour returns the usage of an idle runner that polls its own queue for an hour, and
// the usage of a claim of the same runner at the API. It starts a control plane of its own,
// because requests of other agents during the claim would count.
//
// It counts the requests, the bytes and the table's units of one renewal of the runner's
// session, and calculates the number of renewals from their interval. The renewal is the
// agent's heartbeat. One renewal in each control.MaxSessionAge is a new session, which needs two
// requests and three records; the result counts it as a renewal.
func idleHour(ctx context.Context, b *bench) (hour, claim usage, err error) {
	meter, t := enginetest.Meter(enginetest.Memory()), newTally()
	p, err := startMetered(ctx, b, meter, t)
	if err != nil {
		return hour, claim, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	c := p.control
	// The runner has no other agents, as the runner of an install.
	made, err := c.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "idle-install"}, "")
	if err != nil {
		return hour, claim, err
	}
	token, _, err := c.CreateEnrolment(ctx, control.User{Org: fairlead.DefaultOrg}, made.Name)
	if err != nil {
		return hour, claim, err
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return hour, claim, err
	}
	if _, err := c.Enrol(ctx, token, pub); err != nil {
		return hour, claim, err
	}
	nonce := c.NewChallenge()
	var agent *client.Client
	for range 2 { // the first request opens the session, the second one renews it
		meter.Reset()
		t.reset()
		s, err := p.Client.CreateSession(ctx, wire.SessionRequest{RunnerID: string(made.ID), Nonce: nonce, Instance: "idle", Version: "bench", Capacity: 4, PublicKey: pub,
			Signature: ed25519.Sign(key, wire.SessionStatement(nonce, string(made.ID), "idle")), Report: &wire.SessionHeartbeat{Capacity: 4, Running: []string{}}})
		if err != nil {
			return hour, claim, err
		}
		nonce, agent = s.RenewalNonce, p.Client.WithToken(s.Token)
	}
	renewal := t.usage(meter.Total())
	renewal.OutGB += 1500 / 1e9 // the credentials of the queue, which this control plane does not have
	renewal.Reads++             // an agent with a role has a stack and an install, and no key
	meter.Reset()
	t.reset()
	if _, err := agent.Claim(ctx, claimFor, false); !errors.Is(err, client.ErrNoWork) {
		return hour, claim, fmt.Errorf("claim of an idle runner: %w, want no work", err)
	}
	claim = t.usage(meter.Total())
	meter.Reset()
	online, err := c.Online(ctx, made.ID)
	if err != nil || !online {
		return hour, claim, fmt.Errorf("check that the runner is online: %t, %w", online, err)
	}
	check := meter.Total()
	check.Read++ // the sweep finds the runner's watch with an index
	checksAnHour := time.Hour.Seconds() / c.WatchEvery().Seconds()
	return usage{Queue: receivesAnHour, Reads: checksAnHour * check.Read}.plus(renewalsAnHour, renewal), claim, nil
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

// atRest returns the usage of an idle control plane in a month: its five keys, its alarms and
// the metrics behind them that are not AWS's own, the sweep, and Lambda's receives, which AWS
// bills even without a message.
func atRest() usage {
	const (
		sweeps = (1 + messages) * minutesAMonth
		// Each minute has one send. Each message has one delete, and one receive that ends when the message arrives.
		starts = (1 + 2*messages) * minutesAMonth
	)
	return usage{Invokes: sweeps, GBSeconds: sweeps * lambdaMS / 1000. * functionMB / 1024, Reads: 4 * sweeps,
		Queue: starts + functionQueues*pollsAMinute*minutesAMonth, Dollars: 5 + 45*0.10 + 5*0.30}
}
