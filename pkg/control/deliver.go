package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/webhook"
)

// deliveryKept is how long a delivery is stored and can be requested again.
const deliveryKept = 30 * 24 * time.Hour

// maxSenders is how many endpoints receive one event concurrently.
const maxSenders = 8

// retries are the pauses after failed attempts. If the attempt after the last pause
// fails too, 7 h 36 min after the first attempt, the delivery has failed.
var retries = [...]time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour}

// Deliverer delivers events to the webhooks that select them. Events may be repeated
// and arrive in any order, because the table records each delivery. Safe for concurrent
// use. All fields are required.
type Deliverer struct {
	Store  *store.Store
	Sealer seal.Sealer
	Sender webhook.Sender
	IDs    fairlead.IDSource
	Now    func() time.Time
	Logger *slog.Logger
}

// Wanted reports whether a webhook selects the event.
func (d *Deliverer) Wanted(ctx context.Context, e events.Domain) (bool, error) {
	hooks, err := d.hooks(ctx, e)
	return len(hooks) > 0, err
}

// hooks returns the webhooks that select the event.
func (d *Deliverer) hooks(ctx context.Context, e events.Domain) ([]store.Webhook, error) {
	if e.Org == "" {
		return nil, nil
	}
	list, err := d.Store.AllWebhooks(ctx, fairlead.OrgID(e.Org))
	if err != nil {
		return nil, err
	}
	id, _, _ := strings.Cut(e.Subject, "/")
	var out []store.Webhook
	for _, h := range list {
		if e.Type == store.RedeliveryEvent && h.V.ID == id || e.Type != store.RedeliveryEvent && webhook.Selects(h.V.Events, e.Type) {
			out = append(out, h.V)
		}
	}
	return out, nil
}

// Deliver delivers the event to each webhook that selects it and has not received it.
// If a delivery must be retried, Deliver returns the pause after which the caller must
// pass the same event again. It returns 0 if every delivery succeeded or has failed
// finally. After an error the caller must pass the event again too.
func (d *Deliverer) Deliver(ctx context.Context, e events.Domain) (again time.Duration, err error) {
	hooks, err := d.hooks(ctx, e)
	if err != nil {
		return 0, fmt.Errorf("deliver %s of %s: %w", e.Type, e.Subject, err)
	}
	pauses, errs := make([]time.Duration, len(hooks)), make([]error, len(hooks))
	var g errgroup.Group
	g.SetLimit(maxSenders)
	for i, h := range hooks {
		g.Go(func() error {
			pauses[i], errs[i] = d.deliver(ctx, h, e)
			return nil
		})
	}
	_ = g.Wait() // errs holds the errors
	for i, h := range hooks {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("deliver %s of %s to webhook %s: %w", e.Type, e.Subject, h.Name, errs[i])
		}
		if p := pauses[i]; p > 0 && (again == 0 || p < again) {
			again = p
		}
	}
	return again, errors.Join(errs...)
}

// Settings of Work. A received event stays hidden for longer than all its deliveries
// take, including their timeouts.
const (
	workHide  = 2 * time.Minute
	workAgain = 10 * time.Second // after an error
)

// Work delivers the events of the named queue until ctx ends. The messages are events
// in JSON. To retry later, Work sends a new message with a delay, because a queue drops
// a message after a few receives, and a retry may need more.
func (d *Deliverer) Work(ctx context.Context, q queue.Queue, name string) {
	for ctx.Err() == nil {
		m, err := q.Receive(ctx, name, workHide, queue.MaxWait)
		if errors.Is(err, queue.ErrNoMessage) || err != nil && ctx.Err() != nil {
			continue // if an event was received while ctx ended, work makes it visible again
		}
		if err == nil {
			err = d.work(ctx, q, name, m)
		}
		if err != nil && ctx.Err() == nil {
			d.Logger.Warn("an event was not delivered; it is received again", "error", err)
			kernel.Pause(ctx, time.Second)
		}
	}
}

func (d *Deliverer) work(ctx context.Context, q queue.Queue, name string, m queue.Message) error {
	var e events.Domain
	if err := json.Unmarshal(m.Body, &e); err != nil {
		return fmt.Errorf("a message is not an event, and is left for the dead letters: %w", err)
	}
	again, err := d.Deliver(ctx, e)
	if ctx.Err() != nil {
		// Make the event visible now for another process, instead of after workHide.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return errors.Join(err, q.Extend(ctx, name, m.Receipt, 0))
	}
	if err != nil {
		d.Logger.Warn("an event was not delivered; it is received again", "error", err)
		again = workAgain
	}
	if again > 0 {
		if err := q.Send(ctx, name, m.Body, min(again, queue.MaxDelay)); err != nil {
			return err
		}
	}
	if err := q.Delete(ctx, name, m.Receipt); err != nil && !errors.Is(err, queue.ErrReceipt) {
		return err
	}
	return nil
}

func (d *Deliverer) deliver(ctx context.Context, h store.Webhook, e events.Domain) (again time.Duration, err error) {
	r, err := d.delivery(ctx, h, e)
	if err != nil || r.V.State != store.DeliveryPending {
		return 0, err
	}
	now := d.Now().UTC().Truncate(time.Millisecond)
	if wait := r.V.Next.Sub(now); wait > 0 {
		return wait, nil
	}
	keys, err := d.keys(ctx, h, now)
	if err != nil {
		return 0, err
	}
	m, err := webhook.Encode(r.V.What)
	if err != nil {
		return 0, err
	}
	status, failed := d.Sender.Send(ctx, h.URL, keys, m)
	if ctx.Err() != nil {
		return 0, ctx.Err() // our own time limit, not a failure of the endpoint
	}
	judge(&r.V, status, failed, now)
	tx := &store.Tx{}
	tx.PutDelivery(r)
	err = d.Store.Commit(ctx, d.IDs(kernel.PrefixCommit), tx)
	if _, conflict := errors.AsType[*engine.ConflictError](err); conflict {
		return retries[0], nil // another process delivered it meanwhile, or a person requested it again
	}
	if err != nil {
		return 0, fmt.Errorf("record the attempt: %w", err)
	}
	d.Logger.Info("sent an event", "webhook", h.Name, "event", r.V.ID, "type", r.V.What.Type, "attempt", r.V.Attempts, "status", status, "state", r.V.State, "problem", r.V.Problem)
	if r.V.State == store.DeliveryPending {
		return r.V.Next.Sub(now), nil
	}
	return 0, nil
}

// keys returns the keys that sign now, the newest first.
func (d *Deliverer) keys(ctx context.Context, h store.Webhook, now time.Time) ([]webhook.Keys, error) {
	sealed := [][]byte{h.Secret}
	if h.Earlier != nil && now.Before(h.Earlier.Until) {
		sealed = append(sealed, h.Earlier.Secret)
	}
	var keys []webhook.Keys
	for _, s := range sealed {
		k, err := openKeys(ctx, d.Sealer, h.ID, s)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// delivery returns the record of the event's delivery to the webhook.
func (d *Deliverer) delivery(ctx context.Context, h store.Webhook, e events.Domain) (store.Stored[store.Delivery], error) {
	if e.Type == store.RedeliveryEvent {
		_, id, _ := strings.Cut(e.Subject, "/")
		return store.Optional(d.Store.Delivery(ctx, h.ID, id)) // not found: it has expired
	}
	id := webhook.ID(e)
	r, err := store.Optional(d.Store.Delivery(ctx, h.ID, id))
	if err == nil && r.Version == 0 {
		r.V = store.Delivery{ID: id, Webhook: h.ID, What: e, State: store.DeliveryPending, Expires: d.Now().UTC().Add(deliveryKept)}
	}
	return r, err
}

// judge records an attempt in the delivery, and schedules the next attempt or ends the
// delivery.
func judge(v *store.Delivery, status int, failed error, now time.Time) {
	v.Attempts++
	v.Last, v.Next, v.Status, v.Problem = now, time.Time{}, status, ""
	if failed == nil && status >= 200 && status < 300 {
		v.State = store.DeliveryDelivered
		return
	}
	if failed != nil {
		v.Problem = fairlead.Clip(failed.Error(), 500)
	} else {
		v.Problem = fmt.Sprintf("the endpoint answered %d %s", status, http.StatusText(status))
	}
	// With 410 an endpoint reports that it was removed permanently. A URL with a
	// private address stays invalid.
	never := status == http.StatusGone || failed != nil && fairlead.KindOf(failed) == fairlead.KindInvalid
	if never || v.Attempts > len(retries) {
		v.State = store.DeliveryFailed
		return
	}
	v.Next = now.Add(retries[v.Attempts-1])
}
