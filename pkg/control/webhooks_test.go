package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// endpoints is a webhook sender. For each URL it returns the status of a model endpoint, or
// an error if the endpoint does not answer.
type endpoints struct {
	mu     sync.Mutex
	answer map[string]int // for each URL: the status of the answer; 0: the endpoint does not answer
	refuse error
	got    map[string][]string // for each URL: the identifiers of the events that the endpoint received
	secret map[string]string
	signed map[string][]string // for each URL: the secret and the public key of each pair that signed the last event
}

func (e *endpoints) Send(_ context.Context, url string, keys []webhook.Keys, m webhook.Message) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got[url] = append(e.got[url], m.ID)
	e.secret[url], e.signed[url] = keys[0].FormatSecret(), nil
	for _, k := range keys {
		e.signed[url] = append(e.signed[url], k.FormatSecret()+" "+k.FormatPublic())
	}
	if e.answer[url] == 0 {
		if e.refuse != nil {
			return 0, e.refuse
		}
		return 0, errors.New("it did not respond in time")
	}
	return e.answer[url], nil
}

const (
	good = "https://good.example/hooks"
	bad  = "https://bad.example/hooks"
)

func hooked(p *plane) (*endpoints, *control.Deliverer) {
	e := &endpoints{answer: map[string]int{good: 204, bad: 500}, got: map[string][]string{}, secret: map[string]string{}, signed: map[string][]string{}}
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

// drive delivers the event, and repeats the delivery as a queue does, until no retry is
// needed. It returns the pauses before the retries.
func (p *plane) drive(d *control.Deliverer, e events.Domain) (pauses []time.Duration) {
	p.t.Helper()
	for range 20 {
		var again time.Duration
		p.must("deliver", func() (err error) { again, err = d.Deliver(p.ctx, e); return })
		if again == 0 {
			return pauses
		}
		pauses = append(pauses, again)
		time.Sleep(again) // in the time of the bubble
	}
	p.t.Fatal("the event is still retried after 20 deliveries")
	return nil
}

// An event is delivered once to each endpoint that selects it. If a delivery fails, it is
// retried, and each pause is at least as long as the pause before. The retries to a failing
// endpoint send no second copy to another endpoint. After the last retry failed, a person
// can request the delivery again.
func TestEventsReachWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ends, d := hooked(p)
		w := p.hook("good", good)
		if again := p.hook("good", good); again.Secret != w.Secret || again.ID != w.ID || !strings.HasPrefix(w.Secret, "whsec_") {
			t.Errorf("one request created %+v and %+v", w, again)
		}
		p.hook("bad", bad, "fairlead.job.*")
		p.hook("other", "https://other.example", "fairlead.deployment.*")

		e := failed(1)
		pauses := p.drive(d, e)
		p.drive(d, e) // the queue delivers the message a second time, and no endpoint gets the event again
		total := time.Duration(0)
		for i, pause := range pauses {
			if i > 0 && pause < pauses[i-1] {
				t.Errorf("the pauses do not grow: %v", pauses)
			}
			total += pause
		}
		if len(pauses) != 7 || total != 7*time.Hour+36*time.Minute+10*time.Second {
			t.Errorf("%d pauses of %s in total: %v", len(pauses), total, pauses)
		}
		if g, b := ends.got[good], ends.got[bad]; len(g) != 1 || len(b) != 8 || b[0] != g[0] || b[7] != g[0] || g[0] != webhook.ID(e) {
			t.Errorf("one endpoint got %q, the other %q", g, b)
		}
		if ends.secret[good] != w.Secret {
			t.Error("the message is signed with another secret")
		}
		if len(ends.got) != 2 {
			t.Errorf("sent to %v", ends.got)
		}
		list := p.deliveries("bad")
		if len(list) != 1 || list[0].State != store.DeliveryFailed || list[0].Attempts != 8 || list[0].Status != 500 || list[0].Problem != "the endpoint answered 500 Internal Server Error" {
			t.Fatalf("deliveries %+v", list)
		}

		ends.answer[bad] = 200
		var asked control.Delivery
		p.must("redeliver", func() (err error) { asked, err = p.Redeliver(control.As(p.ctx, carol), org, "bad", list[0].ID); return })
		hook, err := p.Store.Webhook(p.ctx, org, "bad")
		if err != nil {
			t.Fatal(err)
		}
		kept, err := p.Store.Delivery(p.ctx, hook.V.ID, asked.ID)
		if err != nil {
			t.Fatal(err)
		}
		again, ok := kept.V.Event(kept.V.AskedAt)
		if !ok || asked.State != store.DeliveryPending || kept.V.ChangedBy != carol {
			t.Fatalf("the requested delivery is %+v", asked)
		}
		if _, ok := kept.V.Event(kept.V.AskedAt + 1); ok {
			t.Error("the record of an attempt has an event")
		}
		for range 2 {
			if pauses := p.drive(d, again); pauses != nil {
				t.Errorf("the requested delivery pauses %v", pauses)
			}
		}
		if len(ends.got[bad]) != 9 || len(ends.got[good]) != 1 || p.deliveries("bad")[0].State != store.DeliveryDelivered {
			t.Errorf("the endpoints got %v; %+v", ends.got, p.deliveries("bad"))
		}

		p.must("delete", func() error { return p.DeleteWebhook(p.ctx, org, "bad") })
		if pauses := p.drive(d, failed(2)); pauses != nil || len(ends.got[bad]) != 9 {
			t.Errorf("after its deletion the endpoint got %v", ends.got[bad])
		}
		if err := p.DeleteWebhook(p.ctx, org, "bad"); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("a second deletion: %v", err)
		}
	})
}

// If an endpoint fails permanently, the delivery is not retried. Events without an org, and
// events of another org, are sent to no webhook of this org.
func TestWebhookGetsSelectedEventsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ends, d := hooked(p)
		p.hook("bad", bad)
		ends.answer[bad] = 410
		if pauses := p.drive(d, failed(1)); pauses != nil || p.deliveries("bad")[0].State != store.DeliveryFailed {
			t.Errorf("a removed endpoint is tried again after %v", pauses)
		}
		ends.answer[bad], ends.refuse = 0, fairlead.Invalid("invalid-webhook-url", "the URL is invalid")
		if pauses := p.drive(d, failed(2)); pauses != nil || p.deliveries("bad")[0].Problem != "the URL is invalid" {
			t.Errorf("an invalid URL is tried again after %v: %+v", pauses, p.deliveries("bad")[0])
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
			t.Errorf("a redelivery to an unknown webhook pauses %v", pauses)
		}
	})
}

// If several processes deliver the same event at the same time, the endpoint gets the event
// at least once, and the table records one delivery.
func TestConcurrentDeliveriesAreRecordedOnce(t *testing.T) {
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

func TestInvalidWebhooksAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.hook("first", good)
		for name, test := range map[string]struct {
			in   control.NewWebhook
			want string
		}{
			"an empty name":      {control.NewWebhook{Name: "", URL: good}, "invalid-name"},
			"a name in use":      {control.NewWebhook{Name: "first", URL: good}, "webhook-exists"},
			"without TLS":        {control.NewWebhook{Name: "x", URL: "http://good.example"}, "invalid-webhook-url"},
			"an invalid pattern": {control.NewWebhook{Name: "x", URL: good, Events: []string{"jobs"}}, "invalid-webhook-event"},
			"a misspelt type":    {control.NewWebhook{Name: "x", URL: good, Events: []string{"fairlead.job.fialed"}}, "invalid-webhook-event"},
		} {
			if _, err := p.CreateWebhook(p.ctx, org, test.in, ""); string(fairlead.CodeOf(err)) != test.want {
				t.Errorf("%s: %v, want %s", name, err, test.want)
			}
		}
		for i := range control.MaxWebhooks - 1 {
			p.hook(fmt.Sprintf("w%d", i), good)
		}
		if _, err := p.CreateWebhook(p.ctx, org, control.NewWebhook{Name: "x", URL: good}, ""); fairlead.CodeOf(err) != "too-many-webhooks" {
			t.Errorf("one more than allowed: %v", err)
		}
		list, next, err := p.Webhooks(p.ctx, org, fairlead.PageQuery{Limit: 100})
		if err != nil || next != "" || len(list) != control.MaxWebhooks || list[0].Secret != "" {
			t.Errorf("%d webhooks, %v", len(list), err)
		}
		if _, err := p.Redeliver(p.ctx, org, "first", "evt_none"); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("a redelivery of an unknown event: %v", err)
		}
	})
}

// held is an endpoint that does not answer. Its Send returns when the context ends.
type held struct{ asked chan struct{} }

func (h held) Send(ctx context.Context, _ string, _ []webhook.Keys, _ webhook.Message) (int, error) {
	close(h.asked)
	<-ctx.Done()
	return 0, ctx.Err()
}

// If a process is interrupted while it sends an event, the next process gets the event at
// once. The interrupted attempt is not counted as an attempt.
func TestEventOfAnEndingProcessIsSentByTheNext(t *testing.T) {
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
			time.Sleep(time.Millisecond) // in the time of the bubble
		}
		end()
		wg.Wait()
		if v := p.deliveries("good")[0]; v.State != store.DeliveryDelivered || v.Attempts != 1 || len(ends.got[good]) != 1 || time.Since(start) > time.Second {
			t.Errorf("after %s the delivery is %+v", time.Since(start), v)
		}
	})
}

// lastTake is a queue that interrupts its receiver after it returned a message.
type lastTake struct {
	queue.Queue
	end context.CancelFunc
}

func (q lastTake) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	m, err := q.Queue.Receive(ctx, name, hide, wait)
	q.end()
	return m, err
}

// If a process is interrupted while it receives an event, the event is visible again at
// once. Other processes need not wait for workHide.
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
			t.Fatalf("the interrupted process sent the event: %+v", ends.got[good])
		}
		m, err := p.Queue.Receive(p.ctx, "webhooks", time.Minute, time.Second)
		if err != nil || !bytes.Equal(m.Body, body) {
			t.Errorf("the next process gets %q, %v", m.Body, err)
		}
	})
}

// If an endpoint does not work for hours, a worker retries until the event is delivered.
// The event does not become a dead letter.
func TestWorkerRetriesForHours(t *testing.T) {
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
		time.Sleep(7 * time.Hour) // in the time of the bubble; the last attempt follows later
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

// The keys of a webhook are rotated. For the requested time, both pairs sign, and the endpoint changes meanwhile. Then only the new
// pair signs. A webhook of an earlier release has no key for Ed25519 until then.
func TestRotatedKeysOfAWebhookOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		e, d := hooked(p)
		first := p.hook("ops", good, "*")
		if !strings.HasPrefix(first.Secret, "whsec_") || !strings.HasPrefix(first.Public, "whpk_") {
			t.Fatalf("the webhook is created with %+v", first)
		}
		n := 0
		signers := func() []string {
			n++
			p.drive(d, failed(n))
			return e.signed[good]
		}
		pair := func(w control.Webhook) string { return w.Secret + " " + w.Public }
		rotate := func(keep time.Duration, key string) control.Webhook {
			t.Helper()
			w, err := p.RotateWebhook(p.ctx, org, "ops", keep, key)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		second := rotate(24*time.Hour, "one")
		if second.Secret == first.Secret || second.Public == first.Public || second.EarlierPublic != first.Public || time.Until(second.EarlierUntil) != 24*time.Hour {
			t.Errorf("after the rotation: %+v", second)
		}
		if again := rotate(24*time.Hour, "one"); again.Secret != second.Secret {
			t.Error("a repeated request rotates again")
		}
		if got := signers(); !slices.Equal(got, []string{pair(second), pair(first)}) {
			t.Errorf("after the rotation these sign: %q", got)
		}
		third := rotate(time.Hour, "two")
		if got := signers(); !slices.Equal(got, []string{pair(third), pair(second)}) {
			t.Errorf("after two rotations these sign: %q", got)
		}
		if _, err := p.RotateWebhook(p.ctx, org, "ops", 24*time.Hour, "one"); fairlead.CodeOf(err) != fairlead.CodeWebhookRotated {
			t.Errorf("the request whose keys were replaced is repeated: %v", err)
		}
		time.Sleep(time.Hour) // bubble time
		if got := signers(); !slices.Equal(got, []string{pair(third)}) {
			t.Errorf("after the overlap these sign: %q", got)
		}
		fourth := rotate(24*time.Hour, "")
		if w, err := p.RevokeWebhookKeys(p.ctx, org, "ops"); err != nil || !w.EarlierUntil.IsZero() || w.Secret != "" {
			t.Errorf("revoke: %+v, %v", w, err)
		}
		if got := signers(); !slices.Equal(got, []string{pair(fourth)}) {
			t.Errorf("after the revocation these sign: %q", got)
		}
		if fifth := rotate(0, ""); !slices.Equal(signers(), []string{pair(fifth)}) {
			t.Errorf("after a rotation without overlap these sign: %q", e.signed[good])
		}
		for _, keep := range []time.Duration{-time.Second, control.MaxWebhookKeep + time.Second} {
			if _, err := p.RotateWebhook(p.ctx, org, "ops", keep, ""); fairlead.KindOf(err) != fairlead.KindInvalid {
				t.Errorf("an overlap of %s: %v", keep, err)
			}
		}
	})
}
