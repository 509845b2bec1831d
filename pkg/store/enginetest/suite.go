// Package enginetest is the conformance suite of package engine. It also has engines for
// tests of packages that use an engine: MemoryEngine stores items in memory, FaultyEngine
// fails as databases fail, and MeterEngine counts what DynamoDB would bill.
package enginetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Options of Run.
type Options struct {
	// Settle is the longest time that an index may lag behind the table; 0 means 10 s.
	Settle time.Duration
}

// Run tests that the engine fulfils the contract. The function open returns a ready engine.
// It may return the same engine each time, and the engine need not be empty, because each
// test uses its own partitions.
func Run(t *testing.T, open func(t *testing.T) engine.Engine, opts Options) {
	if opts.Settle <= 0 {
		opts.Settle = 10 * time.Second
	}
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"commit", commitTests()},
		{"token", tokenTests()},
		{"query", queryTests()},
		{"index", indexTests()},
		{"limits", limitTests()},
		{"concurrency", concurrencyTests()},
		{"model", modelTests()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.tests {
				t.Run(c.name, func(t *testing.T) {
					c.run(&fixture{T: t, e: open(t), settle: opts.Settle, run: rand.Text()})
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(*fixture)
}

// fixture is the environment of one test.
type fixture struct {
	*testing.T
	e      engine.Engine
	settle time.Duration
	run    string // prefix of this test's partitions
}

// part returns a partition that no other test uses.
func (f *fixture) part(name string) string { return f.run + "/" + name }

func (f *fixture) key(partition, sort string) engine.Key {
	return engine.Key{Partition: f.part(partition), Sort: sort}
}

// token returns a new token.
func token() string { return rand.Text() }

func put(k engine.Key, body string, cond engine.Precondition) engine.Write {
	return engine.Write{Op: engine.Put, Item: engine.Item{Key: k, Body: []byte(body)}, If: cond}
}

func del(k engine.Key, cond engine.Precondition) engine.Write {
	return engine.Write{Op: engine.Delete, Item: engine.Item{Key: k}, If: cond}
}

func check(k engine.Key, cond engine.Precondition) engine.Write {
	return engine.Write{Op: engine.Check, Item: engine.Item{Key: k}, If: cond}
}

// commit commits with a new token and returns the token.
func (f *fixture) commit(writes ...engine.Write) string {
	f.Helper()
	tok := token()
	if err := f.e.Commit(f.Context(), tok, writes...); err != nil {
		f.Fatalf("commit: %v", err)
	}
	return tok
}

func (f *fixture) get(k engine.Key) engine.Item {
	f.Helper()
	it, err := f.e.Get(f.Context(), k)
	if err != nil {
		f.Fatalf("get %q: %v", k, err)
	}
	return it
}

// want asserts that the stored item equals the parameter it.
func (f *fixture) want(it engine.Item) {
	f.Helper()
	if d := differ(it, f.get(it.Key)); d != "" {
		f.Errorf("item %q: %s", it.Key, d)
	}
}

func (f *fixture) wantNone(k engine.Key) {
	f.Helper()
	if it, err := f.e.Get(f.Context(), k); !errors.Is(err, engine.ErrNotFound) {
		f.Errorf("get %q: got version %d and error %v, want ErrNotFound", k, it.Version, err)
	}
}

// wantConflict asserts that err is a conflict at key k, that the failed precondition is cond,
// and that the conflict shows the item current.
func (f *fixture) wantConflict(err error, k engine.Key, cond engine.Precondition, current *engine.Item) {
	f.Helper()
	c, ok := errors.AsType[*engine.ConflictError](err)
	switch {
	case !ok:
		f.Errorf("got error %v, want a conflict at %q", err, k)
	case c.Key != k || c.If != cond:
		f.Errorf("got a conflict at %q (%s), want it at %q (%s)", c.Key, c.If, k, cond)
	case current == nil && c.Current != nil:
		f.Errorf("conflict at %q shows version %d, but there is no item", k, c.Current.Version)
	case current != nil && c.Current == nil:
		f.Errorf("conflict at %q shows no item", k)
	case current != nil:
		if d := differ(*current, *c.Current); d != "" {
			f.Errorf("conflict at %q does not show the stored item: %s", k, d)
		}
	}
}

// differ returns a description of how got differs from want, or "" if they are equal.
func differ(want, got engine.Item) string {
	var d []string
	add := func(what string, want, got any) { d = append(d, fmt.Sprintf("%s is %v, want %v", what, got, want)) }
	if got.Key != want.Key {
		add("key", want.Key, got.Key)
	}
	if got.Version != want.Version {
		add("version", want.Version, got.Version)
	}
	if got.Token != want.Token {
		add("token", want.Token, got.Token)
	}
	if !bytes.Equal(got.Body, want.Body) {
		add("body", brief(want.Body), brief(got.Body))
	}
	for _, index := range []engine.Index{engine.List, engine.Due} {
		if w, g := want.Place(index), got.Place(index); (w == nil) != (g == nil) || (w != nil && *w != *g) {
			add("place in "+string(index), w, g)
		}
	}
	if w := engine.ExpiryTime(engine.ExpirySeconds(want.Expires)); !got.Expires.Equal(w) {
		add("expiry", w, got.Expires)
	}
	return strings.Join(d, "; ")
}

func brief(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// all reads every page of the query. limit is the number of items in a page; 0 means the
// engine's default.
func all(ctx context.Context, e engine.Engine, q engine.Query, limit int) ([]engine.Item, error) {
	var items []engine.Item
	q.Limit, q.After = limit, ""
	if limit == 0 {
		limit = engine.MaxPage
	}
	for range 100_000 {
		page, err := e.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(page.Items) > limit {
			return nil, fmt.Errorf("a page has %d items, the limit is %d", len(page.Items), limit)
		}
		items = append(items, page.Items...)
		if page.Next == "" {
			return items, nil
		}
		if page.Next == q.After {
			return nil, fmt.Errorf("the cursor %q is followed by itself", page.Next)
		}
		q.After = page.Next
	}
	return nil, errors.New("the query does not end after 100,000 pages")
}

func (f *fixture) all(q engine.Query, limit int) []engine.Item {
	f.Helper()
	items, err := all(f.Context(), f.e, q, limit)
	if err != nil {
		f.Fatalf("query %+v: %v", q, err)
	}
	return items
}

func sorts(items []engine.Item) []string {
	var s []string
	for _, it := range items {
		s = append(s, it.Key.Sort)
	}
	return s
}

// wantSorts asserts the sort keys that a query returns. A query of the table must return
// them at once. An index may lag, so wantSorts repeats a query of an index until it returns
// them or the settle time is over.
func (f *fixture) wantSorts(q engine.Query, limit int, want ...string) {
	f.Helper()
	ask := func() error {
		items, err := all(f.Context(), f.e, q, limit)
		if err != nil {
			return err
		}
		if got := sorts(items); !slices.Equal(got, want) {
			return fmt.Errorf("query %+v, %d a page: got %q, want %q", q, limit, got, want)
		}
		return nil
	}
	if q.Index != engine.Table {
		f.eventually(ask)
	} else if err := ask(); err != nil {
		f.Error(err)
	}
}

// eventually calls ok until it returns nil or the settle time is over.
func (f *fixture) eventually(ok func() error) {
	f.Helper()
	if err := poll(f.Context(), f.settle, ok); err != nil {
		f.Errorf("after %s: %v", f.settle, err)
	}
}

func poll(ctx context.Context, settle time.Duration, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
