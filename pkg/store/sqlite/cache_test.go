package sqlite

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

// A reader that began before a commit may have the item as it was before. If it put that into the cache after the commit, all later
// reads would show an item that no longer exists.
func TestSlowReaderDoesNotUndoACommit(t *testing.T) {
	e := openFile(t, Options{})
	k := engine.Key{Partition: "p", Sort: "a"}
	commit := func(n int) {
		t.Helper()
		if err := e.Commit(t.Context(), fmt.Sprint("token ", n), write("a", n, engine.Any())); err != nil {
			t.Fatal(err)
		}
	}
	commit(1)
	e.cache.clear()
	_, found, began := e.cache.get(k)
	old, err := get(t.Context(), e.read.get, k)
	if err != nil || found {
		t.Fatalf("the item is read: %v, from the cache: %t", err, found)
	}
	for name, change := range map[string]func(){
		"a commit": func() { commit(2) },
		"a commit, and its item fell out of the cache": func() { commit(3); e.cache.items.Purge() },
		"a commit runs":              func() { e.cache.take([]*request{{writes: []engine.Write{write("a", 4, engine.Any())}}}) },
		"expired items were removed": func() { e.cache.settle(nil); e.cache.clear() },
	} {
		change()
		e.cache.add(old, began)
		if it, found, _ := e.cache.get(k); found && it.Version == old.Version {
			t.Errorf("%s: the cache has version %d of before", name, it.Version)
		}
	}
}

// Each read shows every commit that returned before the read began, whatever readers and commits run beside it.
func TestReadsShowEachCommit(t *testing.T) {
	e := openFile(t, Options{})
	const items, commits = 3, 300
	var returned [items]atomic.Int64 // the newest version whose commit has returned
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for i := range items {
		writers.Go(func() {
			for n := range commits {
				if err := e.Commit(t.Context(), fmt.Sprint(i, " ", n), write(fmt.Sprint(i), n, engine.Any())); err != nil {
					t.Error(err)
				}
				returned[i].Store(int64(n + 1))
				if n%50 == 0 {
					e.cache.clear() // so that reads take the way through the file
				}
			}
		})
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					least := returned[i].Load()
					it, err := e.Get(t.Context(), engine.Key{Partition: "p", Sort: fmt.Sprint(i)})
					if err != nil && !(errors.Is(err, engine.ErrNotFound) && least == 0) {
						t.Error(err)
						return
					}
					if it.Version < least || err == nil && int64(len(it.Body)) != it.Version-1 {
						t.Errorf("a read shows version %d with %d bytes, after version %d was committed", it.Version, len(it.Body), least)
						return
					}
				}
			})
		}
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

func TestPrunedItemIsNotReadAgain(t *testing.T) {
	e := openFile(t, Options{})
	w := write("a", 1, engine.Absent())
	w.Item.Expires = time.Unix(1000, 0)
	if err := e.Commit(t.Context(), "token", w); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Get(t.Context(), w.Item.Key); err != nil {
		t.Fatal(err)
	}
	if n, err := e.Prune(t.Context(), time.Unix(2000, 0)); n != 1 || err != nil {
		t.Fatalf("%d items are removed, %v", n, err)
	}
	if _, err := e.Get(t.Context(), w.Item.Key); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a removed item is read: %v", err)
	}
	if err := e.Commit(t.Context(), "token 2", write("a", 1, engine.Absent())); err != nil {
		t.Errorf("a removed item is in the way of a new one: %v", err)
	}
}

// A caller may change what it has read, and what it has written.
func TestCallerDoesNotChangeTheCache(t *testing.T) {
	e := openFile(t, Options{})
	w := write("a", 1, engine.Absent())
	if err := e.Commit(t.Context(), "token", w); err != nil {
		t.Fatal(err)
	}
	w.Item.Body[0] = 1
	for range 2 {
		it, err := e.Get(t.Context(), w.Item.Key)
		if err != nil || it.Body[0] != 0 {
			t.Errorf("the item has the bytes %v, %v", it.Body, err)
		}
		it.Body[0] = 2
	}
}
