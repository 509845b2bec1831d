package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/pkg/store/sqlite"
)

// writeEnv is an environment variable that contains the path of a file. If it is set, the
// test binary commits to this file until it is killed, and prints the number of each
// confirmed commit.
const writeEnv = "SQLITE_TEST_WRITE"

func TestMain(m *testing.M) {
	if path := os.Getenv(writeEnv); path != "" {
		writeUntilKilled(path)
		return
	}
	os.Exit(m.Run())
}

func writeUntilKilled(path string) {
	e, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	for n := 0; err == nil; n++ {
		// A commit has two items, so that the test detects a commit that stored only one
		// item.
		err = e.Commit(context.Background(), fmt.Sprint("commit ", n),
			write("a", n, 3000), write("b", n, 3000))
		if err == nil {
			_, err = fmt.Println(n)
		}
	}
	println(err.Error())
	os.Exit(1)
}

func write(partition string, n, size int) engine.Write {
	return engine.Write{Item: engine.Item{
		Key:  engine.Key{Partition: partition, Sort: fmt.Sprintf("%08d", n)},
		Body: make([]byte, size),
	}}
}

func open(t *testing.T, path string) *sqlite.Engine {
	t.Helper()
	e, err := sqlite.Open(t.Context(), path, sqlite.Options{})
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

// count returns the number of items in the partition.
func count(t *testing.T, e engine.Engine, partition string) int {
	t.Helper()
	n, q := 0, engine.Query{Partition: partition}
	for {
		page, err := e.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Items)
		if q.After = page.Next; q.After == "" {
			return n
		}
	}
}

func TestSQLiteConforms(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) engine.Engine {
		return open(t, filepath.Join(t.TempDir(), "store.db"))
	}, enginetest.Options{})
}

func TestConfirmedCommitsSurviveKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	confirmed := 0
	for _, upTo := range []int{1, 40, 700} { // the last round has several checkpoints
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writeEnv+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		printed := 0
		for lines.Scan() {
			if printed++; printed == upTo {
				if err := cmd.Process.Kill(); err != nil { // SIGKILL, during the next commit
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // returns the error "signal: killed"
		confirmed = max(confirmed, printed)

		e := open(t, path) // needs no wait: the kernel released the lock when the process ended
		a, b := count(t, e, "a"), count(t, e, "b")
		if a != b {
			t.Errorf("half a commit is stored: %d and %d items", a, b)
		}
		if a < confirmed || a > confirmed+1 {
			t.Errorf("%d commits are stored, %d were confirmed", a, confirmed)
		}
		confirmed = a
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	open(t, path)
	_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if fairlead.CodeOf(err) != "data-in-use" || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestFileOfANewerVersionIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := sqlitedb.Open(t.Context(), path, sqlitedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Write.Exec(`PRAGMA user_version = 1000`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the refused Open closes the file, so the second Open fails in the same way
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); fairlead.CodeOf(err) != "data-newer" {
			t.Errorf("got %v, want code data-newer", err)
		}
	}
}

func TestPruneDeletesOnlyExpiredItems(t *testing.T) {
	e := open(t, filepath.Join(t.TempDir(), "store.db"))
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := 0; i < 1200; i += engine.MaxCommit { // more than one batch of deletes
		var old []engine.Write
		for j := i; j < i+engine.MaxCommit; j++ {
			w := write("old", j, 0)
			w.Item.Expires = now.Add(-time.Second)
			w.Item.Due = &engine.Key{Partition: "due", Sort: w.Item.Key.Sort}
			old = append(old, w)
		}
		if err := e.Commit(t.Context(), "t", old...); err != nil {
			t.Fatal(err)
		}
	}
	kept := []engine.Write{write("kept", 1, 0), write("kept", 2, 0), write("kept", 3, 0)}
	kept[1].Item.Expires = now
	kept[2].Item.Expires = now.Add(time.Nanosecond)
	if err := e.Commit(t.Context(), "t", kept...); err != nil {
		t.Fatal(err)
	}
	if n, err := e.Prune(t.Context(), now); n != 1200 || err != nil {
		t.Errorf("Prune deleted %d items, %v; want 1200", n, err)
	}
	if old, kept := count(t, e, "old"), count(t, e, "kept"); old != 0 || kept != 3 {
		t.Errorf("%d expired items and %d others are left, want 0 and 3", old, kept)
	}
	page, err := e.Query(t.Context(), engine.Query{Index: engine.Due, Partition: "due"})
	if err != nil || len(page.Items) > 0 {
		t.Errorf("the index still has %d items, %v", len(page.Items), err)
	}
}

func TestCallsAfterCloseFail(t *testing.T) {
	e := open(t, filepath.Join(t.TempDir(), "store.db"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Commit(t.Context(), "t", write("p", 1, 0)); err == nil {
		t.Error("a commit after Close succeeded")
	}
	if _, err := e.Get(t.Context(), engine.Key{Partition: "p", Sort: "1"}); err == nil || errors.Is(err, engine.ErrNotFound) {
		t.Errorf("get after Close: %v", err)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, writes := range []int{1, 4} {
		b.Run(fmt.Sprintf("writes=%d", writes), func(b *testing.B) {
			e, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "store.db"), sqlite.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			for n := 0; b.Loop(); n++ {
				var commit []engine.Write
				for i := range writes {
					commit = append(commit, write(fmt.Sprint(i), n, 600))
				}
				if err := e.Commit(b.Context(), "t", commit...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCommitParallel(b *testing.B) {
	e, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "store.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			w := write("p", n, 600)
			w.If = engine.Any()
			if err := e.Commit(b.Context(), "t", w); err != nil {
				b.Error(err)
			}
		}
	})
}
