package enginetest_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

var (
	keyA = engine.Key{Partition: "p", Sort: "a"}
	keyB = engine.Key{Partition: "p", Sort: "b"}
)

func put(k engine.Key, body string, cond engine.Precondition) engine.Write {
	return engine.Write{Item: engine.Item{Key: k, Body: []byte(body)}, If: cond}
}

func TestFaultyWithoutFaultsConforms(t *testing.T) {
	enginetest.Run(t, func(*testing.T) engine.Engine {
		return enginetest.Faulty(enginetest.Memory(), nil)
	}, enginetest.Options{})
}

// The contract allows that an index lags for a limited time. Here every second result is
// current.
func TestFaultyWithStaleIndexConforms(t *testing.T) {
	enginetest.Run(t, func(*testing.T) engine.Engine {
		return enginetest.Faulty(enginetest.Memory(), enginetest.Alternate(enginetest.Stale))
	}, enginetest.Options{})
}

func wantInjected(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, enginetest.ErrInjected) || fairlead.KindOf(err) != fairlead.KindUnavailable {
		t.Fatalf("got %v, want an injected error of kind unavailable", err)
	}
}

func wantFired(t *testing.T, f *enginetest.FaultyEngine, want map[enginetest.Fault]int) {
	t.Helper()
	got := f.Fired()
	delete(got, enginetest.NoFault)
	if !maps.Equal(got, want) {
		t.Errorf("fired %v, want %v", got, want)
	}
}

func TestNotStoredFaultWritesNothing(t *testing.T) {
	f := enginetest.Faulty(enginetest.Memory(), enginetest.Nth(enginetest.NotStored, 1))
	w := put(keyA, "1", engine.Absent())
	wantInjected(t, f.Commit(t.Context(), "t1", w))
	if _, err := f.Get(t.Context(), keyA); !errors.Is(err, engine.ErrNotFound) {
		t.Fatalf("the commit was stored: %v", err)
	}
	if err := f.Commit(t.Context(), "t1", w); err != nil {
		t.Fatalf("repeat: %v", err)
	}
	f.SetPlan(func(enginetest.Call) enginetest.Fault { return enginetest.NotStored })
	_, err := f.Get(t.Context(), keyA)
	wantInjected(t, err)
	_, err = f.Query(t.Context(), engine.Query{Partition: "p"})
	wantInjected(t, err)
	wantFired(t, f, map[enginetest.Fault]int{enginetest.NotStored: 3})
}

func TestStoredFaultWritesAndFails(t *testing.T) {
	f := enginetest.Faulty(enginetest.Memory(), enginetest.Nth(enginetest.Stored, 2))
	if err := f.Commit(t.Context(), "t1", put(keyA, "1", engine.Absent())); err != nil {
		t.Fatal(err)
	}
	w := put(keyA, "2", engine.Version(1))
	wantInjected(t, f.Commit(t.Context(), "t2", w))
	it, err := f.Get(t.Context(), keyA)
	if err != nil || string(it.Body) != "2" {
		t.Fatalf("the commit was not stored: %+v, %v", it, err)
	}
	if err := f.Commit(t.Context(), "t2", w); err != nil {
		t.Fatalf("repeat: %v", err)
	}
	if it, _ := f.Get(t.Context(), keyA); it.Version != 2 {
		t.Errorf("the commit was stored twice: version %d", it.Version)
	}
	wantFired(t, f, map[enginetest.Fault]int{enginetest.Stored: 1})

	// A commit that fails without an injected fault cannot have the fault Stored.
	f.SetPlan(enginetest.Nth(enginetest.Stored, 1))
	err = f.Commit(t.Context(), "t3", put(keyA, "3", engine.Absent()))
	if _, conflict := errors.AsType[*engine.ConflictError](err); !conflict {
		t.Errorf("got %v, want the conflict", err)
	}
	wantFired(t, f, map[enginetest.Fault]int{enginetest.Stored: 1})
}

func TestConflictFaultWritesNothing(t *testing.T) {
	f := enginetest.Faulty(enginetest.Memory(), enginetest.Alternate(enginetest.Conflict))
	w := put(keyA, "1", engine.Absent())
	err := f.Commit(t.Context(), "t1", w, put(keyB, "1", engine.Absent()))
	c, conflict := errors.AsType[*engine.ConflictError](err)
	if !conflict || c.Key != keyA || c.Current != nil {
		t.Fatalf("got %v, want a conflict at %s that shows no item", err, keyA)
	}
	if _, err := f.Get(t.Context(), keyB); !errors.Is(err, engine.ErrNotFound) {
		t.Fatalf("the other write was stored: %v", err)
	}
	if err := f.Commit(t.Context(), "t1", w); err != nil {
		t.Fatalf("second attempt: %v", err)
	}
	// The plan has a conflict for the third call of Commit, but the call repeats a commit that
	// happened.
	if err := f.Commit(t.Context(), "t1", w); err != nil {
		t.Fatalf("repeat of a stored commit: %v", err)
	}
	wantFired(t, f, map[enginetest.Fault]int{enginetest.Conflict: 1})

	f.SetPlan(enginetest.Alternate(enginetest.Conflict))
	err = f.Commit(t.Context(), "t2", put(keyA, "2", engine.Version(1)))
	if c, _ := errors.AsType[*engine.ConflictError](err); c == nil || c.Current == nil || string(c.Current.Body) != "1" {
		t.Errorf("got %v, want a conflict that shows the stored item", err)
	}
}

func TestStaleFaultMissesEightCommits(t *testing.T) {
	f := enginetest.Faulty(enginetest.Memory(), nil)
	inList := func(k engine.Key, body, place string, cond engine.Precondition) engine.Write {
		w := put(k, body, cond)
		if place != "" {
			w.Item.List = &engine.Key{Partition: "l", Sort: place}
		}
		return w
	}
	commit := func(n int, w engine.Write) {
		t.Helper()
		if err := f.Commit(t.Context(), fmt.Sprint("t", n), w); err != nil {
			t.Fatal(err)
		}
	}
	key := func(s string) engine.Key { return engine.Key{Partition: "p", Sort: s} }
	commit(1, inList(key("moves"), "old", "3", engine.Absent()))
	commit(2, inList(key("leaves"), "old", "2", engine.Absent()))
	commit(3, inList(key("deleted"), "old", "1", engine.Absent()))
	// A stale result does not show the next eight commits.
	commit(4, inList(key("moves"), "new", "9", engine.Version(1)))
	commit(5, inList(key("leaves"), "new", "", engine.Version(1)))
	commit(6, engine.Write{Op: engine.Delete, Item: engine.Item{Key: key("deleted")}, If: engine.Version(1)})
	commit(7, inList(key("enters"), "new", "5", engine.Absent()))
	for n := range 4 {
		commit(8+n, put(key("other"), "", engine.Any()))
	}
	q := engine.Query{Index: engine.List, Partition: "l"}
	list := func(limit int) (got []string) {
		t.Helper()
		q := q
		q.Limit = limit
		for {
			page, err := f.Query(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range page.Items {
				got = append(got, it.Key.Sort+" "+string(it.Body))
			}
			if q.After = page.Next; q.After == "" {
				return got
			}
		}
	}
	now := []string{"enters new", "moves new"}
	then := []string{"leaves new", "moves new"} // the old entries, with the current items
	if got := list(0); !slices.Equal(got, now) {
		t.Errorf("without a fault: %q, want %q", got, now)
	}
	for _, limit := range []int{0, 1} {
		f.SetPlan(enginetest.Nth(enginetest.Stale, 1)) // later pages continue the stale first page
		if got := list(limit); !slices.Equal(got, then) {
			t.Errorf("stale, %d a page: %q, want %q", limit, got, then)
		}
	}
	f.SetPlan(func(enginetest.Call) enginetest.Fault { return enginetest.Stale })
	if page, err := f.Query(t.Context(), engine.Query{Partition: "p"}); err != nil || len(page.Items) != 4 {
		t.Errorf("the table must never be stale: %d items, %v", len(page.Items), err)
	}
	wantFired(t, f, map[enginetest.Fault]int{enginetest.Stale: 2})
}

func TestSeededFaultsAreReproducible(t *testing.T) {
	run := func(seed uint64) (outcomes []string, fired map[enginetest.Fault]int) {
		f := enginetest.Faulty(enginetest.Memory(), enginetest.Seeded(seed, 0.5))
		for n := range 200 {
			w := put(keyA, fmt.Sprint(n), engine.Any())
			w.Item.Due = &engine.Key{Partition: "d", Sort: fmt.Sprintf("%03d", n)}
			err := f.Commit(t.Context(), fmt.Sprint("t", n), w)
			page, qerr := f.Query(t.Context(), engine.Query{Index: engine.Due, Partition: "d"})
			outcomes = append(outcomes, fmt.Sprint(err, len(page.Items), qerr))
		}
		return outcomes, f.Fired()
	}
	one, fired := run(1)
	again, _ := run(1)
	other, _ := run(2)
	if !slices.Equal(one, again) {
		t.Error("the same seed gave different faults")
	}
	if slices.Equal(one, other) {
		t.Error("another seed gave the same faults")
	}
	for _, fault := range []enginetest.Fault{enginetest.NotStored, enginetest.Stored, enginetest.Conflict, enginetest.Stale} {
		if fired[fault] < 10 {
			t.Errorf("%s hit %d of 400 calls, want at least 10", fault, fired[fault])
		}
	}
}
