package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/ledger/file"
	"github.com/fairlead/fairlead/runner/ledger/ledgertest"
)

func TestConformance(t *testing.T) {
	folder := t.TempDir()
	ledgertest.Run(t, func(*testing.T) ledger.Ledger { return file.New(filepath.Join(folder, "ledger")) })
}

// A step that is killed while it creates an entry leaves a part of it, which is no entry.
func TestPartOfAnEntryIsNone(t *testing.T) {
	folder := t.TempDir()
	l := file.New(folder)
	if err := l.Create(t.Context(), "a/b", []byte("whole")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "a", ".new-123"), []byte("par"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := l.List(t.Context(), "a/"); err != nil || len(all) != 1 {
		t.Errorf("got %q (%v)", all, err)
	}
}
