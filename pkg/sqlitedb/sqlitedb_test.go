package sqlitedb_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// holdEnv is an environment variable that contains the path of a file. If it is set, the
// test binary opens this file and keeps it open until the binary is killed.
const holdEnv = "SQLITEDB_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		hold(path)
		return
	}
	os.Exit(m.Run())
}

func hold(path string) {
	db, err := sqlitedb.Open(context.Background(), path, sqlitedb.Options{})
	if err == nil {
		_, err = db.Write.Exec(`CREATE TABLE t(x); INSERT INTO t VALUES('before the kill')`)
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	os.Stdout.WriteString("holding\n")
	select {} // until the parent kills the process
}

func open(t *testing.T, path string, opts sqlitedb.Options) *sqlitedb.DB {
	t.Helper()
	db, err := sqlitedb.Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func exec1(t *testing.T, db *sqlitedb.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Write.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func wantCode(t *testing.T, err error, kind fairlead.Kind, code fairlead.Code) {
	t.Helper()
	if fairlead.CodeOf(err) != code || fairlead.KindOf(err) != kind {
		t.Fatalf("got error %v (kind %q, code %q), want kind %q, code %q",
			err, fairlead.KindOf(err), fairlead.CodeOf(err), kind, code)
	}
}

func TestCommittedRowsSurviveReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd name?mode=ro&x#1%20.db")
	db := open(t, path, sqlitedb.Options{})
	if err := db.Migrate(t.Context(), []string{`CREATE TABLE t(x) STRICT`}); err == nil {
		t.Fatal("the step should fail: a STRICT table needs a type for each column")
	}
	steps := []string{`CREATE TABLE t(x TEXT) STRICT`, `ALTER TABLE t ADD COLUMN y TEXT; CREATE INDEX ty ON t(y)`}
	if err := db.Migrate(t.Context(), steps[:1]); err != nil {
		t.Fatal(err)
	}
	exec1(t, db, `INSERT INTO t VALUES('one')`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the file has a different name: %v", err)
	}

	db = open(t, path, sqlitedb.Options{})
	if err := db.Migrate(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context(), steps); err != nil {
		t.Fatalf("second migration: %v", err)
	}
	exec1(t, db, `UPDATE t SET y = 'two'`)
	var x, y string
	if err := db.Read.QueryRow(`SELECT x, y FROM t`).Scan(&x, &y); err != nil || x != "one" || y != "two" {
		t.Fatalf("got %q, %q, %v", x, y, err)
	}
}

func TestCommitsAreDurableAndReadersCannotWrite(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"), sqlitedb.Options{})
	for pragma, want := range map[string]string{
		"journal_mode": "wal", // readers never wait for the writer
		"synchronous":  "2",   // FULL: a commit survives a power failure
		"fullfsync":    "1",   // the same on macOS
		"foreign_keys": "1",
		"busy_timeout": "5000",
	} {
		var got string
		if err := db.Write.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("pragma %s is %q (%v), want %q", pragma, got, err, want)
		}
	}
	if _, err := db.Read.Exec(`CREATE TABLE t(x)`); err == nil {
		t.Error("a reading connection wrote")
	}
	info, err := os.Stat(db.Path())
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the file has mode %o: others can read it", mode)
	}
}

func TestSecondProcessIsRefusedUntilTheFirstEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // for a test that fails before the kill below
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "holding\n" {
		t.Fatalf("the child process printed %q, %v", line, err)
	}

	_, err = sqlitedb.Open(t.Context(), path, sqlitedb.Options{})
	wantCode(t, err, fairlead.KindUnavailable, fairlead.CodeDataInUse)
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("the refusal does not name the file and the process: %v", err)
	}

	if err := cmd.Process.Kill(); err != nil { // SIGKILL
		t.Fatal(err)
	}
	_ = cmd.Wait() // returns the error "signal: killed"
	db := open(t, path, sqlitedb.Options{})
	var x string
	if err := db.Read.QueryRow(`SELECT x FROM t`).Scan(&x); err != nil || x != "before the kill" {
		t.Fatalf("after the kill: %q, %v", x, err)
	}
}

func TestSecondOpenInOneProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db := open(t, path, sqlitedb.Options{})
	_, err := sqlitedb.Open(t.Context(), path, sqlitedb.Options{})
	wantCode(t, err, fairlead.KindUnavailable, fairlead.CodeDataInUse)
	exec1(t, db, `CREATE TABLE t(x)`) // the database of the first Open still works
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path, sqlitedb.Options{})
}

func TestNewerFileIsRefusedUnchanged(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"), sqlitedb.Options{})
	exec1(t, db, `PRAGMA user_version = 7`)
	err := db.Migrate(t.Context(), []string{`CREATE TABLE t(x)`})
	wantCode(t, err, fairlead.KindConflict, fairlead.CodeDataNewer)
	var version, tables int
	if err := db.Read.QueryRow(`SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version`).
		Scan(&version, &tables); err != nil || version != 7 || tables != 0 {
		t.Errorf("version %d, %d tables, %v: the file was changed", version, tables, err)
	}
}

func TestFailedStepIsRolledBack(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"), sqlitedb.Options{})
	bad := []string{`CREATE TABLE a(x)`, `CREATE TABLE b(x); CREATE TABLE a(x)`}
	if err := db.Migrate(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "to version 2") {
		t.Fatalf("got %v, want an error that names version 2", err)
	}
	good := []string{bad[0], `CREATE TABLE b(x); CREATE TABLE c(x)`}
	if err := db.Migrate(t.Context(), good); err != nil {
		t.Fatalf("a part of the failed step was stored: %v", err)
	}
}

func TestNonDatabaseIsRefusedUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	content := strings.Repeat("this is a diary, not a database. ", 300)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitedb.Open(t.Context(), path, sqlitedb.Options{})
	wantCode(t, err, fairlead.KindInternal, fairlead.CodeDataCorrupt)
	if b, err := os.ReadFile(path); err != nil || string(b) != content {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestMissingFolderIsReported(t *testing.T) {
	_, err := sqlitedb.Open(t.Context(), filepath.Join(t.TempDir(), "none", "a.db"), sqlitedb.Options{})
	if err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("got %v", err)
	}
}

// Concurrent callers can call Sync. After a reopening, the file has all commits. Sync of a
// file without commits returns no error.
func TestSyncMakesRelaxedCommitsDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relaxed.db")
	db, err := sqlitedb.Open(t.Context(), path, sqlitedb.Options{Relaxed: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Sync(); err != nil {
		t.Errorf("before any commit: %v", err)
	}
	if err := db.Migrate(t.Context(), []string{`CREATE TABLE t (n INTEGER PRIMARY KEY)`}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			if _, err := db.Write.ExecContext(t.Context(), `INSERT INTO t VALUES (?)`, n); err != nil {
				t.Error(err)
			}
			if err := db.Sync(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = sqlitedb.Open(t.Context(), path, sqlitedb.Options{}); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var count int
	if err := db.Read.QueryRowContext(t.Context(), `SELECT count(*) FROM t`).Scan(&count); err != nil || count != 50 {
		t.Errorf("%d of 50 rows are stored: %v", count, err)
	}
}

// A caller can prepare all statements and check Err only once, at the end.
func TestStatementsReturnTheFirstError(t *testing.T) {
	db, err := sqlitedb.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlitedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var good, bad sqlitedb.Statements
	if stmt := good.Prepare(t.Context(), db.Read, `SELECT 1`); stmt == nil || good.Err() != nil || good.Close() != nil {
		t.Errorf("a valid statement: %v, %v", stmt, good.Err())
	}
	first := bad.Prepare(t.Context(), db.Read, `SELECT 1`)
	bad.Prepare(t.Context(), db.Read, `SELECT nonsense FROM nowhere`)
	if after := bad.Prepare(t.Context(), db.Read, `SELECT 2`); after != nil || bad.Err() == nil || !strings.Contains(bad.Err().Error(), "nowhere") {
		t.Errorf("after a failure: %v, %v", after, bad.Err())
	}
	if _, err := first.ExecContext(t.Context()); err == nil {
		t.Error("a statement prepared before the failure is still open")
	}
}
