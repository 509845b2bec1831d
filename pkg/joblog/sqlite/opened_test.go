package sqlite

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// Most jobs have one attempt, and many print nothing before they end. The start of such a job writes nothing into the log's file.
func TestOpenStreamHasNoRowBeforeItsFirstByte(t *testing.T) {
	db, err := sqlitedb.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), sqlitedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := New(db)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(when string, want int) {
		t.Helper()
		var n int
		if err := db.Write.QueryRow("SELECT count(*) FROM log_streams").Scan(&n); err != nil || n != want {
			t.Errorf("%s: %d streams have a row, want %d, %v", when, n, want, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	appended := func(l *Log, s joblog.Stream) error {
		_, err := l.Append(t.Context(), s, 0, []byte("x"))
		return err
	}
	silent, loud, lost := joblog.Stream{Job: "job_1", Epoch: 1}, joblog.Stream{Job: "job_2", Epoch: 1}, joblog.Stream{Job: "job_3", Epoch: 1}
	for _, s := range []joblog.Stream{silent, loud, lost} {
		must(l.Open(t.Context(), s))
	}
	rows("opened", 0)
	must(l.End(t.Context(), silent, false))
	rows("ended without a byte", 1)
	must(appended(l, loud))
	rows("the first byte", 2)
	if len(l.opened) != 1 {
		t.Errorf("%v have no row", l.opened)
	}

	must(l.statements.Close()) // as after the end of the process, which stores no more
	if l, err = New(db); err != nil {
		t.Fatal(err)
	}
	if err := appended(l, lost); !errors.Is(err, joblog.ErrNotFound) {
		t.Errorf("an append to a stream that was lost: %v", err)
	}
	must(l.Open(t.Context(), lost))
	must(appended(l, lost))
	rows("opened again", 3)

	// A later attempt fences the first one, which has no row.
	first, second := joblog.Stream{Job: "job_4", Epoch: 1}, joblog.Stream{Job: "job_4", Epoch: 2}
	must(l.Open(t.Context(), first))
	must(l.Open(t.Context(), second))
	if err := appended(l, first); !errors.Is(err, joblog.ErrFenced) {
		t.Errorf("an append to a fenced stream: %v", err)
	}
	must(l.Open(t.Context(), joblog.Stream{Job: "job_5", Epoch: 1}))
	must(l.Close())
	rows("the log was closed", 6)
}
