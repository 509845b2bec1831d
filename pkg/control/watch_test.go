package control_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/eventbus/queuebus"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	queuesqlite "github.com/fairlead/fairlead/pkg/queue/sqlite"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/pkg/store/sqlite"
	"github.com/fairlead/fairlead/pkg/webhook"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/elasticmq"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// watched is a control plane with a webhook endpoint. The endpoint receives the events of
// the watch, for example that a runner is lost.
type watched struct {
	*plane
	changes func() []control.Record // returns the changes of the table since the last call of this function
	got     []sentEvent
	beats   bool // if true, the agent of the session sends heartbeats during pass
}

type sentEvent struct {
	Type, Subject string
	Data          map[string]any
}

// Send implements webhook.Sender. The endpoint accepts all messages.
func (w *watched) Send(_ context.Context, _ string, _ []webhook.Keys, m webhook.Message) (int, error) {
	var e sentEvent
	if err := json.Unmarshal(m.Body, &e); err != nil {
		return 0, err
	}
	w.got = append(w.got, e)
	return 204, nil
}

// pass sleeps for d. Every 30 s it runs a sweep, and sends a heartbeat if beats is true. It
// returns the types of the events that the endpoint received.
func (w *watched) pass(d time.Duration) string {
	w.t.Helper()
	for end := w.Now().Add(d); w.Now().Before(end); {
		w.sleep(30 * time.Second)
		if w.beats {
			w.must("heartbeat", func() error { return w.HeartbeatSession(w.ctx, w.session, control.Heartbeat{Capacity: 4}) })
		}
		w.must("sweep", func() error { _, err := w.Sweep(w.ctx); return err })
	}
	return w.reported()
}

// reported delivers the changes to the endpoint through a bus and a queue, and returns the
// types of the events that the endpoint received.
func (w *watched) reported() string {
	w.t.Helper()
	d := &control.Deliverer{Store: w.Store, Sealer: w.Sealer, Sender: w, IDs: w.IDs, Now: w.Now, Logger: slog.New(slog.DiscardHandler)}
	waiting := memory.New(w.Now, 5)
	dispatcher := &control.Dispatcher{Bus: queuebus.Bus{Queue: waiting, Name: "events", Wanted: d.Wanted}, Now: w.Now, Logger: w.Logger}
	if again := dispatcher.Dispatch(w.ctx, w.changes()); len(again) > 0 {
		w.t.Fatalf("records %v were not dispatched", again)
	}
	w.got = nil
	for {
		m, err := waiting.Receive(w.ctx, "events", time.Hour, 0)
		if errors.Is(err, queue.ErrNoMessage) {
			break
		}
		if err != nil {
			w.t.Fatal(err)
		}
		var e events.Domain
		if err = json.Unmarshal(m.Body, &e); err == nil {
			_, err = d.Deliver(w.ctx, e)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	var types []string
	for _, e := range w.got {
		types = append(types, strings.TrimPrefix(e.Type, "fairlead."))
	}
	return strings.Join(types, " ")
}

func (w *watched) want(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: the endpoint was sent %q, want %q (%v)", what, got, want, w.got)
	}
}

// bury sends a message to the runner's queue, and receives the message again and again
// until it is a dead letter.
func (w *watched) bury(body string) {
	w.t.Helper()
	name := "runner-" + string(w.session.Runner)
	if err := w.Queue.Send(w.ctx, name, []byte(body), 0); err != nil {
		w.t.Fatal(err)
	}
	for range 50 {
		m, err := w.Queue.Receive(w.ctx, name, time.Minute, 0)
		if errors.Is(err, queue.ErrNoMessage) {
			return
		}
		switch {
		case err == nil && string(m.Body) != body: // another message of the queue, which is a wake-up
			err = w.Queue.Delete(w.ctx, name, m.Receipt)
		case err == nil:
			err = w.Queue.Extend(w.ctx, name, m.Receipt, 0)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Fatal("the message is still received after 50 receives")
}

// watchStory checks that a webhook gets one event for each of these: a lost runner, a job
// that no agent claims, and new dead letters.
func watchStory(w *watched) {
	w.runner("east", control.RunnerFile{})
	w.hook("ops", good, "fairlead.runner.*", "fairlead.job.stuck")
	w.reported() // discards the events of the runner "local"
	w.enrolAs("local", "test")
	w.want("a second agent of an online runner", w.reported(), "")
	w.enrolAt("east")
	w.want("the first session of a runner", w.reported(), "runner.online")
	if e := w.got; len(e) != 1 || e[0].Subject != string(w.session.Runner) || e[0].Data["runner"] != "east" {
		w.t.Errorf("sent %v", e)
	}
	w.beats = true
	w.want("this runner sends heartbeats, the other does not", w.pass(5*time.Minute), "runner.lost")
	if e := w.got; len(e) != 1 || e[0].Data["runner"] != "local" {
		w.t.Errorf("sent %v", e)
	}
	w.beats = false
	w.want("it sends no heartbeats", w.pass(3*time.Minute), "runner.lost")
	w.want("it still sends no heartbeats", w.pass(12*time.Minute), "")
	w.enrolAt("east")
	w.want("it has a new session", w.reported(), "runner.online")
	w.want("its network fails", w.pass(2*time.Minute), "runner.lost")
	w.must("heartbeat", func() error { return w.HeartbeatSession(w.ctx, w.session, control.Heartbeat{Capacity: 4}) })
	w.want("its network works again", w.reported(), "runner.online")
	w.must("end", func() error { return w.HeartbeatSession(w.ctx, w.session, control.Heartbeat{Ending: true}) })
	w.want("its last agent ended its session", w.pass(time.Minute), "runner.lost")
	w.enrolAt("east")
	w.beats = true
	w.want("another agent started", w.pass(time.Minute), "runner.online")

	// The next part is about a job that no agent claims.
	var j control.Job
	w.must("check the runner", func() (err error) { j, err = w.CheckRunner(w.ctx, me, "east", "check"); return })
	w.want("a job waits", w.pass(job.StuckAfter-time.Minute), "")
	w.want("no agent claims it", w.pass(2*time.Minute), "job.stuck")
	if e := w.got; len(e) != 1 || e[0].Subject != string(j.ID) || e[0].Data["runner"] != "east" {
		w.t.Errorf("sent %v", e)
	}
	w.want("still no agent claims it", w.pass(12*time.Minute), "")
	w.must("claim", func() error { _, err := w.Claim(w.ctx, w.session, 0); return err })
	w.want("it is claimed, and lost because no step starts", w.pass(10*time.Minute), "")
	w.want("no agent claims the next attempt either", w.pass(10*time.Minute), "job.stuck")

	// Two messages become dead letters: an unreadable message, and the wake-up of a job that
	// does not exist.
	w.bury("no wake-up")
	w.bury(`{"v":1,"job":"job_1"}`)
	w.want("two messages are dead letters", w.pass(10*time.Minute), "runner.dead-letter")
	if e := w.got; len(e) != 1 || !maps.Equal(e[0].Data, map[string]any{"runner": "east", "letters": "2", "jobs": "job_1", "version": e[0].Data["version"]}) {
		w.t.Errorf("sent %v", e)
	}
	w.want("no more dead letters", w.pass(12*time.Minute), "")
}

func TestLostRunnerIsReportedInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stream{Engine: enginetest.Memory()}
		w, seen := &watched{plane: newPlane(t, s)}, 0
		w.changes = func() []control.Record {
			list := s.since(seen)
			seen += len(list)
			return list
		}
		watchStory(w)
	})
}

func TestLostRunnerIsReportedOnSQLite(t *testing.T) {
	t.Parallel()
	c, dir := newClock(), t.TempDir()
	e, err := sqlite.Open(t.Context(), filepath.Join(dir, "table.db"), sqlite.Options{Record: store.Announces})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlitedb.Open(t.Context(), filepath.Join(dir, "queue.db"), sqlitedb.Options{Relaxed: true})
	if err != nil {
		t.Fatal(err)
	}
	q, err := queuesqlite.New(db, queuesqlite.Options{Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(q.Close(), db.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	w := &watched{plane: newPlaneAt(t, e, c.now, c.sleep)}
	w.Queue = q
	w.changes = func() (records []control.Record) {
		for {
			list, err := e.Changes(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				return records
			}
			for _, r := range list {
				records = append(records, control.Record{At: c.now(), Change: r.Change})
			}
			if err := e.Forget(t.Context(), list[len(list)-1].Sequence); err != nil {
				t.Fatal(err)
			}
		}
	}
	watchStory(w)
}

func TestLostRunnerIsReportedOnDynamoDBAndSQS(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	t.Parallel()
	c, table := newClock(), "watch-"+rand.Text()
	cfg := func(endpoint string) aws.Config {
		return aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(endpoint),
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
			})}
	}
	tables := cfg(server.Endpoint(t))
	if err := dynamotest.CreateTable(t.Context(), tables, table); err != nil {
		t.Fatal(err)
	}
	q, err := sqs.New(cfg(queues.Endpoint(t)), sqs.Options{Prefix: "watch-" + rand.Text()[:8] + "-", MaxReceives: 5, Make: true, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{plane: newPlaneAt(t, dynamo.New(tables, table), c.now, c.sleep)}
	w.Queue, w.Intervals = q, control.Intervals{Prompt: true} // without Prompt, a renewal would wait until the test moves this clock
	changes := dynamodblocal.Stream{Endpoint: server.Endpoint(t), Table: table}
	w.changes = func() (records []control.Record) {
		list, err := changes.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range list {
			var r dynamo.StreamRecord
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			change, err := r.Change()
			records = append(records, control.Record{ID: r.EventID, At: r.Time(), Change: change, Err: err})
		}
		return records
	}
	watchStory(w)
}

// queues is an SQS server that all tests of this package share.
var queues elasticmq.Server

// A control plane receives no heartbeats while it is down. So it marks no runner lost until
// one lease TTL has passed since its start.
func TestRestartMarksNoRunnerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.sleep(time.Hour) // the control plane is down, and the agent runs
		p.HoldLeases()
		for range 3 {
			p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
			p.sleep(15 * time.Second)
			p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
		}
		p.sleep(time.Second)
		p.must("sweep", func() error {
			s, err := p.Sweep(p.ctx)
			if s.Turned != 0 {
				t.Errorf("the sweep found %d runners lost", s.Turned)
			}
			return err
		})
		w, err := p.Store.Watch(p.ctx, p.session.Runner)
		if err != nil || !w.V.Online {
			t.Errorf("the watch is %+v, %v", w.V, err)
		}
	})
}

// If a runner is deleted, no event reports it as lost.
func TestDeletedRunnerIsNotReportedLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stream{Engine: enginetest.Memory()}
		p := newPlane(t, s)
		p.runner("gone", control.RunnerFile{})
		p.enrolAt("gone")
		p.must("delete the runner", func() error {
			err := p.DeleteRunner(p.ctx, control.User{Org: org}, "gone")
			if fairlead.KindOf(err) == fairlead.KindNotFound {
				return nil
			}
			return err
		})
		before := len(s.since(0))
		p.sleep(time.Hour)
		p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
		for _, r := range s.since(before) {
			h, err := store.Happening(r.Change)
			if err != nil || h.Event != nil && h.Event.Subject == string(p.session.Runner) {
				t.Errorf("reported %+v, %v", h.Event, err)
			}
		}
		page, err := p.Store.Watches(p.ctx, fairlead.PageQuery{})
		if err != nil || slices.ContainsFunc(page.Items, func(w store.Stored[store.RunnerWatch]) bool { return w.V.Name == "gone" }) {
			t.Errorf("watches %+v, %v", page.Items, err)
		}
	})
}
