package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/queuetest"
	"github.com/fairlead/fairlead/pkg/queue/sqlite"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		fmt.Fprintln(os.Stderr, child(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func open(tb testing.TB, dir string, opts sqlite.Options) (*sqlite.Queue, func()) {
	tb.Helper()
	db, err := sqlitedb.Open(tb.Context(), filepath.Join(dir, "queue.db"), sqlitedb.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	q, err := sqlite.New(db, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return q, func() {
		if err := q.Close(); err != nil {
			tb.Error(err)
		}
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	}
}

func TestSQLiteConforms(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Open: func(t *testing.T, dir string) (queue.Queue, func()) {
			return open(t, dir, sqlite.Options{Now: time.Now, MaxReceives: queuetest.MaxReceives})
		},
	})
}

func BenchmarkSendReceiveDelete(b *testing.B) {
	q, done := open(b, b.TempDir(), sqlite.Options{})
	defer done()
	body := []byte("job_01jc8q3w0v6m2x4y5z7a9b1c3d")
	for b.Loop() {
		if err := q.Send(b.Context(), "run_1", body, 0); err != nil {
			b.Fatal(err)
		}
		m, err := q.Receive(b.Context(), "run_1", time.Minute, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := q.Delete(b.Context(), "run_1", m.Receipt); err != nil {
			b.Fatal(err)
		}
	}
}
