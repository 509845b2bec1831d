package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbustest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

const newerField = `"later":{"by":"newer"}`

// version is what one version of the control plane stores in a table that two versions share. The
// newer one writes a newer minor schema, and a field that this version does not know.
type version struct {
	engine.Engine
	newer   bool
	mu      sync.Mutex
	commits int
	kept    int      // writes that had to keep the field of the newer version
	lost    []string // writes that lost it
}

// Commit stores the writes as this version writes them.
func (e *version) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	stored := slices.Clone(writes)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.commits++
	for i, w := range stored {
		if w.Op != engine.Put {
			continue
		}
		if before, err := e.Get(ctx, w.Item.Key); err == nil && w.If.N() == before.Version && bytes.Contains(before.Body, []byte(newerField)) {
			if e.kept++; !bytes.Contains(w.Item.Body, []byte(newerField)) {
				e.lost = append(e.lost, w.Item.Key.String())
			}
		}
		if e.newer {
			stored[i].Item.Body = bytes.Replace(w.Item.Body, []byte(`{"schema":"1.0"`), []byte(`{"schema":"1.1",`+newerField), 1)
		}
	}
	return e.Engine.Commit(ctx, token, stored...)
}

// newerQueue sends messages with a field that this version does not know.
type newerQueue struct {
	queue.Queue
	sent *int
}

func (q newerQueue) Send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	*q.sent++
	return q.Queue.Send(ctx, name, append([]byte("{"+newerField+","), bytes.TrimPrefix(body, []byte("{"))...), delay)
}

// During an upgrade, functions of two versions work on one table. Each request of the main story,
// each retry and each sweep goes to one of the two, on each engine: both make jobs and deployments,
// claim what the other has queued, and continue what the other has begun. No write of this version
// loses a field of the newer one. This version dispatches the stream of both.
func TestTwoVersionsShareATable(t *testing.T) {
	story := func(t *testing.T, shared engine.Engine, seed uint64, open func(engine.Engine) *plane) {
		stream := &stream{Engine: shared}
		older, newer := &version{Engine: stream}, &version{Engine: stream, newer: true}
		p := open(older)
		sent := 0
		one := p.Control
		two := control.New(control.Deps{Store: store.New(newer), Queue: newerQueue{one.Queue, &sent}, Log: one.Log, Blobs: one.Blobs, Sealer: one.Sealer, Signer: one.Signer,
			Minter: identity.NewMinter(make([]byte, identity.MinKey)), IDs: one.IDs, Now: one.Now, Logger: one.Logger})
		random := rand.New(rand.NewPCG(seed, 0))
		p.turn = func() { p.Control = []*control.Control{one, two}[random.IntN(2)] }
		p.enrol() // with a challenge of one, and a session of another
		mainStory(t, p)
		if lost := append(older.lost, newer.lost...); len(lost) > 0 || older.kept < 20 {
			t.Errorf("%d writes of the older version kept the newer one's field; lost at %q", older.kept, lost)
		}
		if older.commits < 20 || newer.commits < 20 || sent < 2 {
			t.Errorf("the older version has committed %d times, the newer one %d times, and has sent %d messages", older.commits, newer.commits, sent)
		}
		bus := eventbustest.Memory()
		d := &control.Dispatcher{Queue: one.Queue, Bus: bus, Now: one.Now, Logger: one.Logger}
		if again := d.Dispatch(t.Context(), stream.since(0)); again != nil {
			t.Errorf("records %v must be delivered again, want none", again)
		}
		accountForEvents(t, stream.since(0), bus.Taken(), true)
	}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("memory ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				story(t, enginetest.Memory(), seed, func(e engine.Engine) *plane { return newPlane(t, e) })
			})
		})
	}
	for name, open := range map[string]func(t *testing.T) engine.Engine{
		"SQLite":   func(t *testing.T) engine.Engine { return sqliteTable(t) },
		"DynamoDB": func(t *testing.T) engine.Engine { return dynamoTable(t, "newer") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			story(t, open(t), 1, func(e engine.Engine) *plane { return newPlaneAt(t, e, c.now, c.sleep) })
		})
	}
}

// Items of a newer major schema have a form that this version does not know. It must refuse each
// of them, and must change nothing: neither in a request, nor in the sweep.
func TestNewerMajorSchemaIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Memory()
		p := newPlane(t, e)
		p.publish(shop)
		p.install("acme")
		d := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		var before []engine.Item
		for _, partition := range []string{"ORG#" + string(org) + "#INSTALL", "DEPLOYMENT#" + string(d)} {
			page, err := e.Query(p.ctx, engine.Query{Partition: partition})
			if err != nil || len(page.Items) != 1 {
				t.Fatalf("%s has %d items, %v", partition, len(page.Items), err)
			}
			k := page.Items[0].Key
			p.alter(e, k, func(body string) string { return strings.Replace(body, `"schema":"1.0"`, `"schema":"2.0"`, 1) })
			it, err := e.Get(p.ctx, k)
			if err != nil || !json.Valid(it.Body) {
				t.Fatal(err)
			}
			before = append(before, it)
		}
		_, err := p.Install(p.ctx, org, "acme")
		expectCode(t, "reading the install", err, string(fairlead.CodeNewerSchema))
		if fairlead.KindOf(err) != fairlead.KindUnavailable {
			t.Errorf("the refusal is of kind %s, want unavailable: the newer version can answer a repeated request", fairlead.KindOf(err))
		}
		_, err = p.CancelDeployment(p.ctx, org, d)
		expectCode(t, "canceling the deployment", err, string(fairlead.CodeNewerSchema))
		p.sleep(time.Hour) // every job is overdue
		if _, err := p.Sweep(p.ctx); err != nil {
			t.Errorf("the sweep fails as a whole: %v", err)
		}
		for _, want := range before {
			if got, err := e.Get(p.ctx, want.Key); err != nil || got.Version != want.Version || !bytes.Equal(got.Body, want.Body) {
				t.Errorf("%s was changed to version %d, %v: %s", want.Key, got.Version, err, got.Body)
			}
		}
	})
}
