package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Every query must read one b-tree in order, and start at the last seen entry. If a query
// sorted or scanned rows, a page would cost as much as the whole partition.
func TestEachQueryReadsOneIndexRange(t *testing.T) {
	e := openFile(t, Options{})
	for o, text := range queries() {
		args := make([]any, strings.Count(text, "?"))
		for i := range args {
			args[i] = []byte("x")
		}
		args[len(args)-1] = 10
		rows, err := e.db.Read.Query("EXPLAIN QUERY PLAN "+text, args...)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, detail)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		using := map[engine.Index]string{
			engine.Table: "PRIMARY KEY", engine.List: "INDEX items_list", engine.Due: "INDEX items_due",
		}[o.index]
		got := strings.Join(plan, "; ")
		// The query plan compares the partition for equality, and limits the range at both
		// ends.
		if len(plan) != 1 || !strings.HasPrefix(got, "SEARCH items USING "+using) || strings.Count(got, "=?") != 1 ||
			!strings.Contains(got, ">") || !strings.Contains(got, "<") {
			t.Errorf("%s: %s", fmt.Sprint(o), got)
		}
	}
}

func openFile(t *testing.T, opts Options) *Engine {
	t.Helper()
	e, err := Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func write(sort string, size int, cond engine.Precondition) engine.Write {
	return engine.Write{
		Item: engine.Item{Key: engine.Key{Partition: "p", Sort: sort}, Body: make([]byte, size)}, If: cond,
	}
}

// queue starts the commits one by one while the writer is busy. So one transaction contains
// all commits in this order. queue returns their outcomes.
func queue(t *testing.T, e *Engine, commits [][]engine.Write) []error {
	t.Helper()
	e.writer <- struct{}{}
	errs := make([]error, len(commits))
	var wg sync.WaitGroup
	for i, writes := range commits {
		wg.Go(func() { errs[i] = e.Commit(t.Context(), fmt.Sprint("token ", i), writes...) })
		awaitWaiting(t, e, i+1)
	}
	<-e.writer
	wg.Wait()
	return errs
}

func awaitWaiting(t *testing.T, e *Engine, n int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		e.mu.Lock()
		got := len(e.waiting)
		e.mu.Unlock()
		if got == n {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d commits are waiting, want %d", got, n)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestCommitsInATransactionSeeEarlierOnes(t *testing.T) {
	e := openFile(t, Options{})
	errs := queue(t, e, [][]engine.Write{
		{write("a", 1, engine.Absent())},
		{write("b", 1, engine.Absent()), write("a", 1, engine.Version(1))},
		{write("c", 1, engine.Absent()), write("a", 1, engine.Version(1))}, // the commit before changed the version
		{write("a", 1, engine.Version(2))},
	})
	for i, err := range errs {
		c, conflict := errors.AsType[*engine.ConflictError](err)
		if conflict != (i == 2) || (err != nil && !conflict) {
			t.Errorf("commit %d: %v", i, err)
		}
		if conflict && c.Current.Version != 2 {
			t.Errorf("commit %d: the conflict shows version %d, want 2", i, c.Current.Version)
		}
	}
	page, err := e.Query(t.Context(), engine.Query{Partition: "p"})
	if err != nil || len(page.Items) != 2 || page.Items[0].Version != 3 || page.Items[0].Token != "token 3" {
		t.Errorf("got %+v, %v", page.Items, err)
	}
}

func TestAllCommitsOfManyBatchesReturn(t *testing.T) {
	e := openFile(t, Options{})
	commits := make([][]engine.Write, 2*maxBatch+1)
	for i := range commits {
		commits[i] = []engine.Write{write(fmt.Sprint(i), 1, engine.Absent())}
	}
	if err := errors.Join(queue(t, e, commits)...); err != nil {
		t.Fatal(err)
	}
	page, err := e.Query(t.Context(), engine.Query{Partition: "p"})
	if err != nil || len(page.Items) != len(commits) {
		t.Errorf("%d items are stored (error %v), want %d", len(page.Items), err, len(commits))
	}
}

func TestTooLargeCommitFailsAlone(t *testing.T) {
	e := openFile(t, Options{DB: sqlitedb.Options{MaxPages: 64}}) // 256 KiB
	errs := queue(t, e, [][]engine.Write{
		{write("a", 1000, engine.Absent())},
		{write("big", 300_000, engine.Absent())},
		{write("c", 1000, engine.Absent())},
	})
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("the small commits failed because of the large one: %v, %v", errs[0], errs[2])
	}
	if !strings.Contains(errs[1].Error(), "p/big") {
		t.Errorf("the error does not name the caller's own item: %v", errs[1])
	}
	if fairlead.CodeOf(errs[1]) != "disk-full" || fairlead.KindOf(errs[1]) != fairlead.KindUnavailable {
		t.Errorf("the large commit: got %v, want code disk-full", errs[1])
	}
	page, err := e.Query(t.Context(), engine.Query{Partition: "p"})
	if err != nil || len(page.Items) != 2 {
		t.Errorf("%d items are stored (error %v), want 2", len(page.Items), err)
	}
}

func TestCancelledWaitingCommitIsNotStored(t *testing.T) {
	e := openFile(t, Options{})
	e.writer <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- e.Commit(ctx, "token", write("a", 1, engine.Absent())) }()
	awaitWaiting(t, e, 1)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	<-e.writer
	if err := e.Commit(t.Context(), "token 2", write("b", 1, engine.Absent())); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Get(t.Context(), engine.Key{Partition: "p", Sort: "a"}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("the cancelled commit was stored: %v", err)
	}
}
