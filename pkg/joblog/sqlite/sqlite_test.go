package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/joblog/sqlite"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		fmt.Fprintln(os.Stderr, child(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func open(t joblogtest.TB, dir string) (joblog.Log, func()) {
	t.Helper()
	db, err := sqlitedb.Open(t.Context(), filepath.Join(dir, "log.db"), sqlitedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := sqlite.New(db)
	if err != nil {
		t.Fatal(err)
	}
	return l, func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSQLiteConforms(t *testing.T) {
	joblogtest.Run(t, joblogtest.Harness{Open: open})
}

// BenchmarkAppend appends like a step: a few lines at a time to one stream.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10, joblog.MaxAppend} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, done := open(b, b.TempDir())
			defer done()
			data := make([]byte, size)
			b.SetBytes(int64(size))
			s := joblog.Stream{Job: "job_1", Epoch: 1}
			offset := int64(joblog.MaxStream)
			for b.Loop() {
				if offset+int64(size) > joblog.MaxStream {
					s.Epoch++
					offset = 0
					if err := l.Open(b.Context(), s); err != nil {
						b.Fatal(err)
					}
				}
				next, err := l.Append(b.Context(), s, offset, data)
				if err != nil {
					b.Fatal(err)
				}
				offset = next
			}
		})
	}
}

// BenchmarkRead reads a log of 100-byte lines from its start.
func BenchmarkRead(b *testing.B) {
	l, done := open(b, b.TempDir())
	defer done()
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	if err := l.Open(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	for i := range int64(2000) {
		if _, err := l.Append(b.Context(), s, i*100, make([]byte, 100)); err != nil {
			b.Fatal(err)
		}
	}
	for _, limit := range []int{1 << 10, 64 << 10, 200_000} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			b.SetBytes(int64(limit))
			for b.Loop() {
				if _, err := l.Read(b.Context(), s, 0, limit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
