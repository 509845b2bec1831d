package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// lambdaMS is what a function is billed for a request that does not wait, in
// milliseconds: some of our own CPU time, which a function of 256 MB gets a
// seventh of a core for, and two or three calls of the table at 5 ms each.
const lambdaMS = 30

// tally counts what the parts around the table are asked. Safe for concurrent
// use.
type tally struct {
	mu       sync.Mutex
	requests map[string]int
	held     time.Duration // that requests waited for something to happen
	queue    int
	puts     int
	gets     int
	signed   int
}

func newTally() *tally { return &tally{requests: map[string]int{}} }

func (t *tally) add(n *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
}

// reset forgets everything.
func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.held, t.queue, t.puts, t.gets, t.signed = map[string]int{}, 0, 0, 0, 0, 0
}

// usage returns what was counted, with what the table was asked meanwhile.
func (t *tally) usage(u enginetest.Units) usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := usage{Writes: u.Write(), Reads: u.Read, Queue: float64(t.queue), Puts: float64(t.puts), Gets: float64(t.gets), KMS: float64(t.signed)}
	for _, n := range t.requests {
		out.Requests += float64(n)
	}
	out.GBSeconds = (out.Requests*lambdaMS/1000 + t.held.Seconds()) * functionMB / 1024
	return out
}

// handler counts requests. How long one waited is what it took beyond what a
// request takes that does not wait.
func (t *tally) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		next.ServeHTTP(w, r)
		took := time.Since(began)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.requests[r.Method+" "+shape(r.URL.Path)]++
		if took > 200*time.Millisecond {
			t.held += took
		}
	})
}

// shape is a path without what differs from one object to the next.
func shape(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.ContainsAny(p, "_:") {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}

// countedQueue counts what SQS would be asked: a long poll is a request for each
// 20 s.
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

// measureAWS counts what jobs take of AWS, and reckons what an idle runner does.
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
	// Each commit of a job or a deployment is a record of the table's stream, and
	// at worst each is a batch of its own; a line of log is one, too.
	out.Job.Invokes = float64(meter.Usage()[enginetest.OpCommitMany].Calls+meter.Usage()[enginetest.OpCommitOne].Calls)/jobs + 1
	out.Job.Events = 3 // started, ended, and its share of the deployment's
	out.Job.GBSeconds += out.Job.Invokes * lambdaMS / 1000 * functionMB / 1024
	for path, n := range t.requests {
		b.note("%6d  %s", n, path)
	}

	if out.Hour, err = idleHour(ctx, p.control, meter); err != nil {
		return err
	}
	// A renewal of a running job's lease, four times a minute.
	const renewals = 4
	out.Minute = usage{Requests: renewals, GBSeconds: renewals * lambdaMS / 1000. * functionMB / 1024, Writes: renewals, Reads: 2 * renewals}
	out.Month = atRest()

	if err := b.writeCounted(out); err != nil {
		return err
	}
	b.set("aws_idle_install_dollars", out.idle())
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

// The rhythm of a runner in a customer's stack: what the control plane tells it,
// what SQS allows for one receive, and the life of a session.
const (
	receivesAnHour = 3600. / 20
	sessionsAnHour = 3600. / (0.72 * 15 * 60) // renewed between 60 and 85 % of 15 minutes
)

// idleHour is what a runner takes that polls its own queue and has nothing to
// do. How often it asks is reckoned from its rhythm; what a heartbeat and a
// session take of the table is counted.
func idleHour(ctx context.Context, c *control.Control, meter *enginetest.MeterEngine) (usage, error) {
	meter.Reset()
	session, err := openSession(ctx, c, control.DefaultRunner)
	if err != nil {
		return usage{}, err
	}
	opening := meter.Total()
	meter.Reset()
	if err := c.HeartbeatSession(ctx, session, control.Heartbeat{Capacity: 4}); err != nil {
		return usage{}, err
	}
	beat := meter.Total()
	meter.Reset()
	online, err := c.Online(ctx, session.Runner)
	if err != nil || !online {
		return usage{}, fmt.Errorf("look at a runner that is online: %t, %w", online, err)
	}
	look := meter.Total()
	look.Read++ // its watch, which is found by an index
	looksAnHour := time.Hour.Seconds() / c.WatchEvery().Seconds()
	beatsAnHour := time.Hour.Seconds() / c.HeartbeatEvery().Seconds()
	requests := beatsAnHour + 2*sessionsAnHour // a challenge and a session
	return usage{Requests: requests, GBSeconds: requests * lambdaMS / 1000 * functionMB / 1024, Queue: receivesAnHour,
		Writes: beatsAnHour*beat.Write() + sessionsAnHour*opening.Write(),
		Reads:  beatsAnHour*beat.Read + sessionsAnHour*opening.Read + looksAnHour*look.Read}, nil
}

// What a month at rest is made of. The sweep's schedule starts it each minute, and
// it starts itself four times more by messages that it sends in one request.
const (
	minutesAMonth  = 730 * 60
	messages       = 4 // of the sweep, in a minute
	polls          = 5 // that Lambda has open at any time for a queue that is idle
	pollsAMinute   = polls * 60 / 20
	functionQueues = 2 // from which functions are started: the sweep's, the webhooks'
)

// atRest is what a control plane takes in a month at which nobody looks: its
// four keys, its alarms, the sweep, and the receives of Lambda's, which are
// billed whether they bring something or not.
func atRest() usage {
	const (
		sweeps = (1 + messages) * minutesAMonth
		// The send; and for each message the receive that it ends early, and a delete.
		starts = (1 + 2*messages) * minutesAMonth
	)
	return usage{Invokes: sweeps, GBSeconds: sweeps * lambdaMS / 1000. * functionMB / 1024, Reads: 4 * sweeps,
		Queue: starts + functionQueues*pollsAMinute*minutesAMonth, Dollars: 4 + 28*0.10}
}
