package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// besideNewer is a table on which a newer version of the control plane works beside this one: it
// rewrites each item after each commit, with a newer minor schema and a field that this version
// does not know. Each later write of this version must contain the field again.
type besideNewer struct {
	engine.Engine
	mu   sync.Mutex
	kept int      // writes that had to keep the field
	lost []string // writes that lost it
}

const newerField = `"later":{"by":"newer"}`

func newerBody(body []byte) []byte {
	return []byte(strings.Replace(string(body), `{"schema":"1.0"`, `{"schema":"1.1",`+newerField, 1))
}

// Commit stores this version's writes as the newer version would have written them.
func (e *besideNewer) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	stored := make([]engine.Write, len(writes))
	e.mu.Lock()
	for i, w := range writes {
		if w.Op == engine.Put && w.If.N() > 0 {
			if bytes.Contains(w.Item.Body, []byte(newerField)) {
				e.kept++
			} else {
				e.lost = append(e.lost, w.Item.Key.String())
			}
		}
		w.Item.Body = newerBody(w.Item.Body)
		stored[i] = w
	}
	e.mu.Unlock()
	return e.Engine.Commit(ctx, token, stored...)
}

// During an upgrade, functions of two versions work on one table. The main story runs on items that
// the newer version wrote, on each engine: no write of this version loses a field of the newer one.
func TestTwoVersionsShareATable(t *testing.T) {
	story := func(t *testing.T, e *besideNewer, plane func(engine.Engine) *plane) {
		mainStory(t, plane(e))
		if len(e.lost) > 0 || e.kept < 100 {
			t.Errorf("%d writes kept the newer version's field; lost at %q", e.kept, e.lost)
		}
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			story(t, &besideNewer{Engine: enginetest.Memory()}, func(e engine.Engine) *plane { return newPlane(t, e) })
		})
	})
	for name, open := range map[string]func(t *testing.T) engine.Engine{
		"SQLite":   func(t *testing.T) engine.Engine { return sqliteTable(t) },
		"DynamoDB": func(t *testing.T) engine.Engine { return dynamoTable(t, "newer") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			story(t, &besideNewer{Engine: open(t)}, func(e engine.Engine) *plane { return newPlaneAt(t, e, c.now, c.sleep) })
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
