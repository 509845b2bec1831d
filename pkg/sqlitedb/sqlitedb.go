// Package sqlitedb opens a SQLite file the one way this module uses SQLite:
// durable at commit, one process at a time, one writer connection beside a
// small pool of readers.
//
// Why a commit is durable when it returns: the file is in WAL mode with
// synchronous=FULL, in which SQLite calls fsync on the write-ahead log at the
// end of every transaction, before COMMIT returns
// (https://www.sqlite.org/pragma.html#pragma_synchronous); NORMAL, the usual
// companion of WAL, would sync at checkpoints only and lose the last commits
// with the power. fullfsync makes the same true on macOS, whose fsync leaves
// data in the drive's cache.
//
// A file has one owner: each package that keeps data (the store's engine, the
// queue, the job log) opens a file of its own. Their commits then never wait
// for each other's, and each counts its schema versions by itself in
// PRAGMA user_version.
package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/fairlead/fairlead/pkg/safefile"
)

const (
	defaultReaders = 4
	defaultBusy    = 5 * time.Second

	// walLimit is what the write-ahead log is cut down to after a checkpoint,
	// in bytes: a burst of large commits does not keep its disk space.
	walLimit = 16 << 20

	// cacheKiB is each connection's page cache; the negative sign makes SQLite
	// read it as KiB rather than pages.
	cacheKiB = -8 << 10
)

// Options of Open. The zero value is right for production.
type Options struct {
	// Readers is the number of connections that read at the same time; 0: 4.
	Readers int

	// Busy is how long a statement waits for a lock of another connection
	// before it fails with code "data-busy"; 0: 5 s. The lock file keeps other
	// processes out, so in practice only a backup tool makes anybody wait.
	Busy time.Duration

	// Relaxed lets a commit return before it is on disk: it survives the end of
	// the process, however that ends, but the power may take the last ones.
	// Sync makes them durable. It is for data that the table can do without.
	Relaxed bool

	// MaxPages bounds the file, in pages of 4 KiB; 0: no bound. A commit that
	// would pass it fails with code "disk-full".
	MaxPages int
}

// DB is an open database file. Safe for concurrent use.
type DB struct {
	// Write is the only connection that may write. A transaction begun on it
	// takes the write lock at once (BEGIN IMMEDIATE), so it never fails half
	// way because another one wrote first. A caller that holds a transaction
	// of Write and asks Write for another waits for itself.
	Write *sql.DB

	// Read is the pool of readers; they refuse to write. A statement on it
	// sees every commit that returned before the statement began, and is never
	// blocked by the writer.
	Read *sql.DB

	path string
	lock *os.File

	asked  atomic.Int64 // calls of Sync so far
	syncMu sync.Mutex   // held while syncing
	synced int64        // the last call of Sync that is answered for
}

// Sync makes every commit that returned before it durable. It is for files
// that were opened Relaxed; on others there is nothing left to do. Callers that
// come while one syncs share the next one. Safe for concurrent use.
func (d *DB) Sync() error {
	turn := d.asked.Add(1)
	d.syncMu.Lock()
	defer d.syncMu.Unlock()
	if d.synced >= turn {
		return nil // somebody else's sync began after this call
	}
	upTo := d.asked.Load()
	// What is committed is in the log or, after a checkpoint, which syncs by
	// itself, in the file. SQLite holds no locks on the log, so opening and
	// closing it takes none away.
	wal, err := os.Open(d.path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was ever committed
	}
	if err != nil {
		return Classify("sync database "+d.path, err)
	}
	if err := errors.Join(wal.Sync(), wal.Close()); err != nil {
		return Classify("sync database "+d.path, err)
	}
	d.synced = upTo
	return nil
}

// Open opens the database file at path and makes it when there is none; its
// folder must exist. It takes an exclusive lock on path+".lock", which the
// kernel releases when the process ends, however it ends.
//
// Errors are *fairlead.Error where the world is at fault: code "data-in-use"
// when another process (or this one) has the file open, "data-read-only" when
// the file or its folder cannot be written, "disk-full", "data-corrupt" when
// it is no SQLite file.
func Open(ctx context.Context, path string, opts Options) (_ *DB, err error) {
	op := "open database " + path
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	lock, err := takeLock(path)
	if err != nil {
		return nil, err
	}
	db := &DB{path: path, lock: lock}
	defer func() {
		if err != nil {
			_ = db.Close() // the first error is the one to tell
		}
	}()

	fresh, err := makeFile(path)
	if err != nil {
		return nil, Classify(op, err)
	}
	if db.Write, err = sql.Open("sqlite", dsn(path, opts, false)); err != nil {
		return nil, Classify(op, err)
	}
	db.Write.SetMaxOpenConns(1)
	if err = db.Write.PingContext(ctx); err != nil {
		return nil, Classify(op, err)
	}
	// A ping only opens the file. Taking the write lock finds a read-only file
	// now and not at the first commit, and reading finds one that is no database.
	if err = probe(ctx, db.Write); err != nil {
		return nil, Classify(op, err)
	}
	if db.Read, err = sql.Open("sqlite", dsn(path, opts, true)); err != nil {
		return nil, Classify(op, err)
	}
	readers := opts.Readers
	if readers <= 0 {
		readers = defaultReaders
	}
	db.Read.SetMaxOpenConns(readers)
	db.Read.SetMaxIdleConns(readers) // a reopened connection prepares every statement again
	if err = db.Read.PingContext(ctx); err != nil {
		return nil, Classify(op, err)
	}
	if fresh {
		// SQLite syncs the folder after making a journal or a WAL, but not
		// after making the database itself.
		if err = safefile.SyncFolder(filepath.Dir(path)); err != nil {
			return nil, Classify(op, err)
		}
	}
	return db, nil
}

// Path returns the absolute path of the file.
func (d *DB) Path() string { return d.path }

// Close closes the connections, which folds the write-ahead log into the file,
// and then releases the lock. Calling it twice is no error.
func (d *DB) Close() error {
	var errs []error
	for _, db := range []*sql.DB{d.Read, d.Write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if d.lock != nil {
		if err := d.lock.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Classify("close database "+d.path, err)
	}
	return nil
}

// dsn returns the driver's data source name. The path goes in as a URI, so
// that a "?" or "#" in it stays part of the path.
func dsn(path string, opts Options, readOnly bool) string {
	busy := opts.Busy
	if busy <= 0 {
		busy = defaultBusy
	}
	q := url.Values{}
	q.Set("_busy_timeout", strconv.FormatInt(busy.Milliseconds(), 10))
	q.Set("_dqs", "0")       // "x" is a name and never a string
	q.Set("_defensive", "1") // no statement can damage the file's structure
	q.Set("_synchronous", "FULL")
	if opts.Relaxed {
		q.Set("_synchronous", "NORMAL")
	}
	q.Add("_pragma", "fullfsync(1)")
	q.Add("_pragma", "foreign_keys(1)")
	q.Add("_pragma", "temp_store(MEMORY)")
	q.Add("_pragma", fmt.Sprintf("cache_size(%d)", cacheKiB))
	if readOnly {
		q.Set("_query_only", "1")
	} else {
		q.Set("_journal_mode", "WAL")
		q.Set("_txlock", "immediate")
		q.Add("_pragma", fmt.Sprintf("journal_size_limit(%d)", walLimit))
		if opts.MaxPages > 0 {
			q.Add("_pragma", fmt.Sprintf("max_page_count(%d)", opts.MaxPages))
		}
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}
	return u.String()
}

// makeFile makes an empty database file that only its owner can read: SQLite
// would make it with the umask's mode, and gives its log the same mode as the
// file. It must run before the first connection, because closing any
// descriptor of the file drops the locks that SQLite holds on it.
func makeFile(path string) (fresh bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// probe takes and returns the write lock and reads the schema.
func probe(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	var tables int
	return tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&tables)
}
