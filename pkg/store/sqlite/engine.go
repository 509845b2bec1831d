// Package sqlite stores the table of the typed store in one SQLite file, for one process.
//
// It groups commits. While a transaction is synced to disk, new commits wait, and the next
// transaction contains all of them. Each commit sees the changes of earlier commits, as if
// it had its own transaction. A commit returns only when its transaction is durable.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Options of Open. The zero value is for production.
type Options struct {
	DB sqlitedb.Options
	// Record reports whether the engine records the changes of the item with this key. The
	// commit that makes a change also records it. Changes returns the recorded changes, and
	// Forget deletes them. nil: record no changes.
	Record func(engine.Key) bool
	// Notes makes the engine record each change with an engine.Item.Note, in a list of its own: Noted returns these changes,
	// and ForgetNoted deletes them.
	Notes bool
}

// Engine implements engine.Engine. Its indexes do not lag behind the table. It keeps
// expired items until Prune deletes them.
type Engine struct {
	db    *sqlitedb.DB
	read  readers
	write writers

	cache *cache

	writer chan struct{} // the lock of the writing connection: contains a value while a caller runs a transaction

	records func(engine.Key) bool
	changed chan struct{} // contains a value if changes were recorded since the last receive
	notes   bool
	noted   chan struct{} // the same, of changes with a note

	mu      sync.Mutex
	waiting []*request // commits that are not in a transaction yet
}

var _ engine.Engine = (*Engine)(nil)

// Open opens the file at path and updates its schema. If there is no file, Open creates it;
// the folder must exist. Only one process can have the file open. Open returns the errors
// of sqlitedb.Open and sqlitedb.DB.Migrate.
func Open(ctx context.Context, path string, opts Options) (*Engine, error) {
	db, err := sqlitedb.Open(ctx, path, opts.DB)
	if err != nil {
		return nil, err
	}
	e := &Engine{db: db, cache: newCache(), writer: make(chan struct{}, 1), records: opts.Record, changed: make(chan struct{}, 1), notes: opts.Notes, noted: make(chan struct{}, 1)}
	if err := db.Migrate(ctx, steps()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(sqlitedb.Classify("open store "+db.Path(), err), db.Close())
	}
	return e, nil
}

// Close waits for the running transaction, closes the file and releases its lock. Calls
// after Close fail.
func (e *Engine) Close() error {
	e.writer <- struct{}{}
	defer func() { <-e.writer }()
	return e.db.Close()
}

// Prune deletes the items that expired before now and returns their number.
func (e *Engine) Prune(ctx context.Context, now time.Time) (int64, error) {
	// Each batch of deletes is small, so that a commit never waits long for it.
	const batch = 500
	var total int64
	for {
		n, err := e.pruneSome(ctx, now, batch)
		total += n
		if err != nil {
			return total, sqlitedb.Classify("prune expired items", err)
		}
		if n < batch {
			return total, nil
		}
	}
}

func (e *Engine) pruneSome(ctx context.Context, now time.Time, limit int) (int64, error) {
	select {
	case e.writer <- struct{}{}:
		defer func() { <-e.writer }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	res, err := e.db.Write.ExecContext(ctx, `DELETE FROM items WHERE (partition, sort) IN
		(SELECT partition, sort FROM items WHERE expires < ? LIMIT ?)`, now.Unix(), limit)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if n > 0 || err != nil {
		e.cache.clear()
	}
	return n, err
}

// Get implements engine.Engine.
func (e *Engine) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return engine.Item{}, err
	}
	it, found, began := e.cache.get(k)
	if found {
		return it, nil
	}
	it, err = get(ctx, e.read.get, k)
	switch {
	case err == nil:
		e.cache.add(it, began)
	case !errors.Is(err, engine.ErrNotFound):
		err = sqlitedb.Classify("get "+k.String(), err)
	}
	return it, err
}

// get reads one item. If there is no item, it returns engine.ErrNotFound, not wrapped.
func get(ctx context.Context, stmt *sql.Stmt, k engine.Key) (engine.Item, error) {
	it, err := scan(stmt.QueryRowContext(ctx, []byte(k.Partition), []byte(k.Sort)))
	if errors.Is(err, sql.ErrNoRows) {
		return engine.Item{}, engine.ErrNotFound
	}
	return it, err
}
