package sqlite_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/sqlite"
)

func TestFullDiskKeepsConfirmedCommits(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("SKIPPED: a full disk is NOT tested: mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "store.db")
	e := open(t, path)
	confirmed := 0
	var err error
	for n := range 100 {
		if err = e.Commit(t.Context(), "t", write("a", n, 20_000), write("b", n, 20_000)); err != nil {
			break
		}
		confirmed++
	}
	if fairlead.KindOf(err) != fairlead.KindUnavailable || fairlead.CodeOf(err) != "disk-full" {
		t.Fatalf("on the full disk: got %v, want code disk-full", err)
	}
	stored := func(e engine.Engine, want int) {
		t.Helper()
		if a, b := count(t, e, "a"), count(t, e, "b"); a != want || b != want {
			t.Fatalf("%d and %d items are stored, want %d", a, b, want)
		}
	}
	stored(e, confirmed)

	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	if err := e.Commit(t.Context(), "t", write("a", confirmed, 20_000), write("b", confirmed, 20_000)); err != nil {
		t.Fatalf("commit after space was freed: %v", err)
	}
	stored(e, confirmed+1)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, path)
	stored(e, confirmed+1)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(t.Context(), path, sqlite.Options{})
	if fairlead.KindOf(err) != fairlead.KindUnavailable || fairlead.CodeOf(err) != "data-read-only" {
		t.Fatalf("in the read-only folder: got %v, want code data-read-only", err)
	}
}
