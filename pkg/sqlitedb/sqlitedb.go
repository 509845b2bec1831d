// Package sqlitedb opens a SQLite file in the way that all of Fairlead uses SQLite: durable
// commits, one process at a time, one connection that writes and a small pool of
// connections that read.
//
// A commit is durable when it returns, because the file is in WAL mode with
// synchronous=FULL. SQLite then calls fsync on the write-ahead log at the end of every
// transaction, before COMMIT returns
// (https://www.sqlite.org/pragma.html#pragma_synchronous). NORMAL is the usual setting with
// WAL, but it syncs only at checkpoints, so a power failure would lose the last commits.
// fullfsync is necessary on macOS, where fsync leaves data in the drive's cache.
//
// Each package that stores data (the store's engine, the queue, the job log) has its own
// file. So their commits never wait for each other, and each has its own schema version in
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

	// walLimit is the size of the write-ahead log after a checkpoint, in bytes, at most. So
	// the log frees the disk space of a burst of large commits.
	walLimit = 16 << 20

	// cacheKiB is the size of the page cache of the connection that writes, and readCacheKiB
	// that of each connection that reads: it drops its cache after each commit, so a larger
	// one would only keep memory. SQLite interprets a negative number as KiB instead of pages.
	cacheKiB     = -8 << 10
	readCacheKiB = -1 << 10
)

// Options of Open. The zero value is for production.
type Options struct {
	// Readers is the number of connections that read concurrently; 0: 4.
	Readers int

	// Busy is how long a statement waits for a lock of another connection before it fails
	// with code "data-busy"; 0: 5 s. The lock file excludes other processes, so in practice
	// a statement waits only for a backup tool.
	Busy time.Duration

	// Relaxed makes a commit return before it is on disk. The commit survives the end of
	// the process in any case, but a power failure can lose the last commits. Sync makes
	// them durable. Use Relaxed only for data that the table does not depend on.
	Relaxed bool

	// MaxPages limits the size of the file, in pages of 4 KiB; 0: no limit. A commit that
	// exceeds it fails with code "disk-full".
	MaxPages int
}

// DB is an open database file. Safe for concurrent use.
type DB struct {
	// Write is the only connection that may write. A transaction on it takes the write lock at once (BEGIN IMMEDIATE),
	// so it cannot fail later because another transaction wrote first. A caller that holds a transaction of Write must
	// not begin a second transaction of Write: the caller would wait for itself forever.
	Write *sql.DB

	// Read is the pool of connections that read; they refuse to write. A statement on it sees every commit that
	// returned before the statement began. The writer never blocks a statement on Read.
	Read *sql.DB

	path string
	lock *os.File

	asked  atomic.Int64 // calls of Sync so far
	syncMu sync.Mutex   // held while syncing
	synced int64        // the calls of Sync are numbered; the latest finished sync includes all calls up to this number
}

// Sync makes every earlier commit durable. It is for files opened with Relaxed; for others
// it has no effect. Callers that arrive during a sync share the next one. Safe for
// concurrent use.
func (d *DB) Sync() error {
	turn := d.asked.Add(1)
	d.syncMu.Lock()
	defer d.syncMu.Unlock()
	if d.synced >= turn {
		return nil // the sync of another caller began after this call
	}
	upTo := d.asked.Load()
	// A commit is in the log or, after a checkpoint, in the file; a checkpoint syncs by
	// itself. SQLite has no locks on the log, so closing this descriptor releases none.
	wal, err := os.Open(d.path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there was no commit yet
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

// Open opens the database file at path. It creates the file if there is none; its folder
// must exist. It takes an exclusive lock on path+".lock", which the kernel releases when
// the process ends for any reason.
//
// For a fault of the environment the error is a *fairlead.Error. Its code is "data-in-use"
// if another process (or this one) has the file open, "data-read-only" if the file or its
// folder is not writable, "disk-full", or "data-corrupt" if it is not a SQLite file.
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
			_ = db.Close() // the caller needs the first error
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
	// A ping only opens the file. probe takes the write lock, which finds a read-only file
	// now rather than at the first commit. It also reads the schema, which finds a file
	// that is not a database.
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
	db.Read.SetMaxIdleConns(readers) // a new connection must prepare every statement again
	if err = db.Read.PingContext(ctx); err != nil {
		return nil, Classify(op, err)
	}
	if fresh {
		// SQLite syncs the folder after it creates a journal or a WAL, but not after it
		// creates the database.
		if err = safefile.SyncFolder(filepath.Dir(path)); err != nil {
			return nil, Classify(op, err)
		}
	}
	return db, nil
}

// Path returns the absolute path of the file.
func (d *DB) Path() string { return d.path }

// Close closes the connections, which checkpoints the write-ahead log into the file. Then
// it releases the lock. A second Close has no effect.
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

// dsn returns the driver's data source name. The path is a URI, so that a "?" or "#" stays
// part of the path.
func dsn(path string, opts Options, readOnly bool) string {
	busy := opts.Busy
	if busy <= 0 {
		busy = defaultBusy
	}
	q := url.Values{}
	q.Set("_busy_timeout", strconv.FormatInt(busy.Milliseconds(), 10))
	q.Set("_dqs", "0")       // "x" is an identifier, never a string
	q.Set("_defensive", "1") // no statement can damage the file's structure
	q.Set("_synchronous", "FULL")
	if opts.Relaxed {
		q.Set("_synchronous", "NORMAL")
	}
	q.Add("_pragma", "fullfsync(1)")
	q.Add("_pragma", "foreign_keys(1)")
	q.Add("_pragma", "temp_store(MEMORY)")
	if readOnly {
		q.Add("_pragma", fmt.Sprintf("cache_size(%d)", readCacheKiB))
		q.Set("_query_only", "1")
	} else {
		q.Add("_pragma", fmt.Sprintf("cache_size(%d)", cacheKiB))
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

// makeFile creates an empty database file that only its owner can read. SQLite would create
// it with the mode of the umask, and it gives the log the mode of the file. makeFile must
// run before the first connection: closing any descriptor of the file releases the locks
// that SQLite holds on it.
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

// probe takes the write lock, reads the schema and releases the lock.
func probe(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	var tables int
	return tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&tables)
}
