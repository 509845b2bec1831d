package sqlite_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/sqlite"
)

// A commit records its changes: the items before and after the commit. Changes returns them
// in the order of commits. They survive a restart and stay until Forget. A failed commit
// records no change. For an item that Options.Record excludes, no change is recorded.
func TestChangesAreRecordedWithTheirCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table.db")
	open := func() *sqlite.Engine {
		e, err := sqlite.Open(t.Context(), path, sqlite.Options{Record: func(k engine.Key) bool { return strings.HasPrefix(k.Partition, "JOB#") }})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	job := engine.Key{Partition: "JOB#1", Sort: "JOB"}
	put := func(k engine.Key, cond engine.Precondition, body string) engine.Write {
		return engine.Write{Op: engine.Put, Item: engine.Item{Key: k, Body: []byte(body)}, If: cond}
	}
	commit := func(token string, writes ...engine.Write) error { return e.Commit(t.Context(), token, writes...) }
	for i, writes := range [][]engine.Write{
		{put(job, engine.Absent(), "queued"), put(engine.Key{Partition: "ORG#1", Sort: "x"}, engine.Absent(), "quiet")},
		{put(job, engine.Version(1), "running")},
		{{Op: engine.Check, Item: engine.Item{Key: job}, If: engine.Version(2)}, put(engine.Key{Partition: "ORG#1", Sort: "y"}, engine.Absent(), "quiet")},
		{{Op: engine.Delete, Item: engine.Item{Key: job}, If: engine.Version(2)}},
	} {
		if err := commit(fmt.Sprint("token-", i), writes...); err != nil {
			t.Fatal(err)
		}
	}
	if err := commit("late", put(job, engine.Version(7), "never")); err == nil {
		t.Fatal("a commit with the wrong version succeeded")
	}
	select {
	case <-e.Changed():
	default:
		t.Error("Changed received nothing after the commits")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open()
	defer func() { _ = e.Close() }()
	text := func() (out []string) {
		list, err := e.Changes(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			side := func(it *engine.Item) string {
				if it == nil {
					return "-"
				}
				return fmt.Sprintf("%d:%s", it.Version, it.Body)
			}
			out = append(out, c.Key.String()+" "+side(c.Old)+" "+side(c.New))
		}
		return out
	}
	got := text()
	if want := []string{job.String() + " - 1:queued", job.String() + " 1:queued 2:running", job.String() + " 2:running -"}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("recorded %q, want %q", got, want)
	}
	first, err := e.Changes(t.Context(), 1)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	if err := e.Forget(t.Context(), first[0].Sequence); err != nil {
		t.Fatal(err)
	}
	if got := text(); len(got) != 2 || !strings.Contains(got[0], "2:running") {
		t.Errorf("after Forget of the first change: %q", got)
	}
}
