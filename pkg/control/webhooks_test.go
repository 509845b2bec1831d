package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/pkg/webhook"
)

// endpoints are the vendor's: each answers with its status, or not at all.
type endpoints struct {
	mu     sync.Mutex
	answer map[string]int // by URL; 0: none
	refuse error
	got    map[string][]string // identifiers of what came, by URL
	secret map[string]string
}

func (e *endpoints) Send(_ context.Context, url string, secret []byte, m webhook.Message) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got[url] = append(e.got[url], m.ID)
	e.secret[url] = webhook.FormatSecret(secret)
	if e.answer[url] == 0 {
		if e.refuse != nil {
			return 0, e.refuse
		}
		return 0, errors.New("it did not answer in time")
	}
	return e.answer[url], nil
}

const (
	good = "https://good.example/hooks"
	bad  = "https://bad.example/hooks"
)

func hooked(p *plane) (*endpoints, *control.Deliverer) {
	e := &endpoints{answer: map[string]int{good: 204, bad: 500}, got: map[string][]string{}, secret: map[string]string{}}
	return e, &control.Deliverer{Store: p.Store, Sealer: p.Sealer, Sender: e, IDs: p.IDs, Now: p.Now, Logger: slog.New(slog.DiscardHandler)}
}

func (p *plane) hook(name, url string, patterns ...string) control.Webhook {
	p.t.Helper()
	var w control.Webhook
	p.must("create webhook", func() (err error) {
		w, err = p.CreateWebhook(p.ctx, org, control.NewWebhook{Name: name, URL: url, Events: patterns}, "key-"+name)
		return
	})
	return w
}

func (p *plane) deliveries(name string) []control.Delivery {
	p.t.Helper()
	list, _, err := p.Deliveries(p.ctx, org, name, fairlead.PageQuery{Limit: 100})
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

func failed(n int) events.Domain {
	return events.Domain{V: 1, Type: "fairlead.job.failed", Org: string(org), Subject: fmt.Sprintf("job_%d", n), Version: 3, Time: time.Now().UTC().Truncate(time.Millisecond)}
}

// drive delivers the event as a queue does, until it need not come again.
func (p *plane) drive(d *control.Deliverer, e events.Domain) (pauses []time.Duration) {
	p.t.Helper()
	for range 20 {
		var again time.Duration
		p.must("deliver", func() (err error) { again, err = d.Deliver(p.ctx, e); return })
		if again == 0 {
			return pauses
		}
		pauses = append(pauses, again)
		time.Sleep(again) // of the bubble
	}
	p.t.Fatal("an event comes again for ever")
	return nil
}

// An event reaches each endpoint that selects it, once; the one that fails is
// tried later and later and then given up, without the other hearing of it
// again; a person asks for it once more, and it arrives.
func TestEventsReachWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ends, d := hooked(p)
		w := p.hook("good", good)
		if again := p.hook("good", good); again.Secret != w.Secret || again.ID != w.ID || !strings.HasPrefix(w.Secret, "whsec_") {
			t.Errorf("made twice by one request: %+v and %+v", w, again)
		}
		p.hook("bad", bad, "fairlead.job.*")
		p.hook("other", "https://other.example", "fairlead.deployment.*")

		e := failed(1)
		pauses := p.drive(d, e)
		p.drive(d, e) // the queue repeats itself
		total := time.Duration(0)
		for i, pause := range pauses {
			if i > 0 && pause < pauses[i-1] {
				t.Errorf("the pauses do not grow: %v", pauses)
			}
			total += pause
		}
		if len(pauses) != 7 || total != 7*time.Hour+36*time.Minute+10*time.Second {
			t.Errorf("%d pauses of %s altogether: %v", len(pauses), total, pauses)
		}
		if g, b := ends.got[good], ends.got[bad]; len(g) != 1 || len(b) != 8 || b[0] != g[0] || b[7] != g[0] || g[0] != webhook.ID(e) {
			t.Errorf("one endpoint got %q, the other %q", g, b)
		}
		if ends.secret[good] != w.Secret {
			t.Error("signed with another secret than its owner has")
		}
		if len(ends.got) != 2 {
			t.Errorf("sent to %v", ends.got)
		}
		list := p.deliveries("bad")
		if len(list) != 1 || list[0].State != store.DeliveryFailed || list[0].Attempts != 8 || list[0].Status != 500 || list[0].Problem != "it answered 500 Internal Server Error" {
			t.Fatalf("deliveries %+v", list)
		}

		ends.answer[bad] = 200
		var asked control.Delivery
		p.must("redeliver", func() (err error) { asked, err = p.Redeliver(p.ctx, org, "bad", list[0].ID); return })
		hook, err := p.Store.Webhook(p.ctx, org, "bad")
		if err != nil {
			t.Fatal(err)
		}
		kept, err := p.Store.Delivery(p.ctx, hook.V.ID, asked.ID)
		if err != nil {
			t.Fatal(err)
		}
		again, ok := kept.V.Event(kept.V.AskedAt)
		if !ok || asked.State != store.DeliveryPending {
			t.Fatalf("asked for again: %+v", asked)
		}
		if _, told := kept.V.Event(kept.V.AskedAt + 1); told {
			t.Error("an attempt asks for another")
		}
		for range 2 {
			if pauses := p.drive(d, again); pauses != nil {
				t.Errorf("asked for again, it pauses %v", pauses)
			}
		}
		if len(ends.got[bad]) != 9 || len(ends.got[good]) != 1 || p.deliveries("bad")[0].State != store.DeliveryDelivered {
			t.Errorf("the endpoints got %v; %+v", ends.got, p.deliveries("bad"))
		}

		p.must("delete", func() error { return p.DeleteWebhook(p.ctx, org, "bad") })
		if pauses := p.drive(d, failed(2)); pauses != nil || len(ends.got[bad]) != 9 {
			t.Errorf("after it was deleted it got %v", ends.got[bad])
		}
		if err := p.DeleteWebhook(p.ctx, org, "bad"); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("deleted twice: %v", err)
		}
	})
}

// What never gets better is not tried again; whose org an event does not say
// hears nobody; another org's webhooks never hear of it.
func TestWebhookGetsSelectedEventsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ends, d := hooked(p)
		p.hook("bad", bad)
		ends.answer[bad] = 410
		if pauses := p.drive(d, failed(1)); pauses != nil || p.deliveries("bad")[0].State != store.DeliveryFailed {
			t.Errorf("an endpoint that is gone is tried after %v", pauses)
		}
		ends.answer[bad], ends.refuse = 0, fairlead.Invalid("invalid-webhook-url", "the URL is none")
		if pauses := p.drive(d, failed(2)); pauses != nil || p.deliveries("bad")[0].Problem != "the URL is none" {
			t.Errorf("a URL that is none is tried after %v: %+v", pauses, p.deliveries("bad")[0])
		}
		sent := len(ends.got[bad])
		for _, other := range []string{"", "another"} {
			e := failed(3)
			e.Org = other
			if wanted, err := d.Wanted(p.ctx, e); wanted || err != nil {
				t.Errorf("an event of org %q is wanted: %v", other, err)
			}
			p.drive(d, e)
		}
		if len(ends.got[bad]) != sent {
			t.Error("an event of another org was sent")
		}
		if wanted, err := d.Wanted(p.ctx, failed(3)); !wanted || err != nil {
			t.Errorf("an event of its org is wanted: %t, %v", wanted, err)
		}
		stranger := events.Domain{V: 1, Type: store.RedeliveryEvent, Org: string(org), Subject: "whk_none/evt_none", Version: 1, Time: time.Now()}
		if pauses := p.drive(d, stranger); pauses != nil {
			t.Errorf("a redelivery to nobody pauses %v", pauses)
		}
	})
}

// Two invocations have the same event at once: each endpoint has it at least
// once, and the table says so once.
func TestEventIsDeliveredByTwoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ends, d := hooked(p)
		p.hook("good", good)
		e := failed(1)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { p.drive(d, e) })
		}
		wg.Wait()
		if list := p.deliveries("good"); len(list) != 1 || list[0].State != store.DeliveryDelivered || list[0].Attempts != 1 || len(ends.got[good]) < 1 {
			t.Errorf("%+v after %d messages", list, len(ends.got[good]))
		}
	})
}

func TestWebhooksThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.hook("first", good)
		for name, test := range map[string]struct {
			in   control.NewWebhook
			want string
		}{
			"no name":            {control.NewWebhook{Name: "", URL: good}, "invalid-name"},
			"a name in use":      {control.NewWebhook{Name: "first", URL: good}, "webhook-exists"},
			"without TLS":        {control.NewWebhook{Name: "x", URL: "http://good.example"}, "invalid-webhook-url"},
			"no event's pattern": {control.NewWebhook{Name: "x", URL: good, Events: []string{"jobs"}}, "invalid-webhook-event"},
		} {
			if _, err := p.CreateWebhook(p.ctx, org, test.in, ""); string(fairlead.CodeOf(err)) != test.want {
				t.Errorf("%s: %v, want %s", name, err, test.want)
			}
		}
		for i := range control.MaxWebhooks - 1 {
			p.hook(fmt.Sprintf("w%d", i), good)
		}
		if _, err := p.CreateWebhook(p.ctx, org, control.NewWebhook{Name: "x", URL: good}, ""); fairlead.CodeOf(err) != "too-many-webhooks" {
			t.Errorf("one more than there can be: %v", err)
		}
		list, next, err := p.Webhooks(p.ctx, org, fairlead.PageQuery{Limit: 100})
		if err != nil || next != "" || len(list) != control.MaxWebhooks || list[0].Secret != "" {
			t.Errorf("%d webhooks, %v", len(list), err)
		}
		if _, err := p.Redeliver(p.ctx, org, "first", "evt_none"); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("redelivered what is not there: %v", err)
		}
	})
}

// held is an endpoint that is asked, and does not answer before its caller
// gives up.
type held struct{ asked chan struct{} }

func (h held) Send(ctx context.Context, _ string, _ []byte, _ webhook.Message) (int, error) {
	close(h.asked)
	<-ctx.Done()
	return 0, ctx.Err()
}

// A process that is told to end while it sends an event leaves it to the next
// at once; the attempt does not count.
func TestEventOfAProcessThatEndsIsTakenByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ends, d := hooked(p)
		p.hook("good", good)
		body, err := json.Marshal(failed(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Queue.Send(p.ctx, "webhooks", body, 0); err != nil {
			t.Fatal(err)
		}
		first := *d
		asked := make(chan struct{})
		first.Sender = held{asked}
		ctx, end := context.WithCancel(p.ctx)
		var wg sync.WaitGroup
		wg.Go(func() { first.Work(ctx, p.Queue, "webhooks") })
		<-asked
		end()
		wg.Wait()
		start := time.Now()
		ctx, end = context.WithCancel(p.ctx)
		wg.Go(func() { d.Work(ctx, p.Queue, "webhooks") })
		for len(p.deliveries("good")) == 0 {
			time.Sleep(time.Millisecond) // of the bubble
		}
		end()
		wg.Wait()
		if v := p.deliveries("good")[0]; v.State != store.DeliveryDelivered || v.Attempts != 1 || len(ends.got[good]) != 1 || time.Since(start) > time.Second {
			t.Errorf("after %s the delivery is %+v", time.Since(start), v)
		}
	})
}

// lastTake is a queue whose receiver is told to end while it takes a message.
type lastTake struct {
	queue.Queue
	end context.CancelFunc
}

func (q lastTake) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	m, err := q.Queue.Receive(ctx, name, hide, wait)
	q.end()
	return m, err
}

// An event that was taken off the queue as the process was told to end stayed
// hidden for two minutes, and was told only then.
func TestEventTakenAtShutdownIsVisibleAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ends, d := hooked(p)
		p.hook("good", good)
		body, err := json.Marshal(failed(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Queue.Send(p.ctx, "webhooks", body, 0); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(p.ctx)
		d.Work(ctx, lastTake{p.Queue, end}, "webhooks")
		if len(ends.got[good]) > 0 {
			t.Fatalf("the process that was told to end has sent it: %+v", ends.got[good])
		}
		m, err := p.Queue.Receive(p.ctx, "webhooks", time.Minute, time.Second)
		if err != nil || !bytes.Equal(m.Body, body) {
			t.Errorf("the next process gets %q, %v", m.Body, err)
		}
	})
}

// A worker brings an event to an endpoint that is down for hours, and the
// queue gives up nothing of it.
func TestWorkerOutlastsAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ends, d := hooked(p)
		p.hook("bad", bad)
		body, err := json.Marshal(failed(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Queue.Send(p.ctx, "webhooks", body, 0); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(p.ctx)
		var wg sync.WaitGroup
		wg.Go(func() { d.Work(ctx, p.Queue, "webhooks") })
		time.Sleep(7 * time.Hour) // of the bubble; the last attempt is yet to come
		ends.mu.Lock()
		ends.answer[bad] = 200
		ends.mu.Unlock()
		time.Sleep(time.Hour)
		end()
		wg.Wait()
		if list := p.deliveries("bad"); len(list) != 1 || list[0].State != store.DeliveryDelivered || list[0].Attempts != 8 {
			t.Errorf("deliveries %+v", list)
		}
		if dead, err := p.Queue.DeadLetters(p.ctx, "webhooks", 10); err != nil || len(dead) > 0 {
			t.Errorf("%d dead letters, %v", len(dead), err)
		}
	})
}
