package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// maxBatch is the maximum number of commits in one transaction. The first commit of a
// transaction must wait for the last commit, and maxBatch limits this time: 64 commits of a
// few writes take about 5 ms.
const maxBatch = 64

// request is one commit that waits for a transaction or is in one.
type request struct {
	token  string
	writes []engine.Write
	err    error
	done   chan struct{} // closed when err is final
}

// Commit implements engine.Engine. Many callers can wait in Commit. The caller that acquires
// the writer runs the transaction for all of them. So the engine needs no goroutine that it
// must start and stop.
func (e *Engine) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	if err := engine.CheckCommit(token, writes); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{token: token, writes: writes, done: make(chan struct{})}
	e.mu.Lock()
	e.waiting = append(e.waiting, r)
	e.mu.Unlock()

	for {
		select {
		case e.writer <- struct{}{}:
			e.runBatch()
			<-e.writer
			select {
			case <-r.done:
				return r.err
			default: // the batch was full and did not contain this commit
			}
		case <-r.done:
			return r.err
		case <-ctx.Done():
			if e.withdraw(r) {
				return fmt.Errorf("%s: %w", r.op(), ctx.Err())
			}
			// The commit is already in a transaction. The transaction ends soon, and
			// determines the outcome of the commit.
			<-r.done
			return r.err
		}
	}
}

// withdraw removes r from the waiting commits. It reports whether r was waiting.
func (e *Engine) withdraw(r *request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, w := range e.waiting {
		if w == r {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// runBatch runs the oldest waiting commits. The caller must hold the writer. The transaction
// serves several callers, so it does not use a caller's context.
func (e *Engine) runBatch() {
	e.mu.Lock()
	n := min(len(e.waiting), maxBatch)
	batch := e.waiting[:n:n]
	e.waiting = e.waiting[n:]
	if len(e.waiting) == 0 {
		e.waiting = nil // free the array
	}
	e.mu.Unlock()
	if n == 0 {
		return
	}
	ctx := context.Background()
	certain, err := e.transact(ctx, batch)
	for _, r := range batch {
		own := err
		if n > 1 && err != nil && certain {
			// A single commit may be the cause, for example if it is too large for the free
			// disk space. The other commits of the batch must not fail because of it. So
			// each commit runs again in its own transaction.
			_, own = e.transact(ctx, []*request{r})
		}
		if own != nil {
			// All commits of the batch may have the same failure, but each error must name
			// its own commit.
			r.err = sqlitedb.Classify(r.op(), own)
		}
		close(r.done)
	}
}

// op returns a description of the commit for error messages.
func (r *request) op() string { return "commit at " + r.writes[0].Item.Key.String() }

// transact runs the batch in one transaction. It sets err of each request to the outcome of
// this request. The outcomes are valid only if transact returns a nil error. If transact
// returns an error, certain reports whether it is certain that the transaction has changed
// nothing.
func (e *Engine) transact(ctx context.Context, batch []*request) (certain bool, err error) {
	known := e.cache.take(batch)
	var now map[engine.Key]engine.Item // what is durable at the end
	defer func() { e.cache.settle(now) }()
	tx, err := e.db.Write.BeginTx(ctx, nil)
	if err != nil {
		return true, err
	}
	defer func() { _ = tx.Rollback() }() // after a successful Commit, Rollback does nothing
	t := transaction{records: e.records, notes: e.notes, known: known, now: map[engine.Key]engine.Item{}, gone: map[engine.Key]bool{}, writers: writers{
		get:   tx.StmtContext(ctx, e.write.get),
		peek:  tx.StmtContext(ctx, e.write.peek),
		put:   tx.StmtContext(ctx, e.write.put),
		del:   tx.StmtContext(ctx, e.write.del),
		note:  tx.StmtContext(ctx, e.write.note),
		noted: tx.StmtContext(ctx, e.write.noted),
	}}
	for _, r := range batch {
		r.err = t.apply(ctx, r)
		if _, conflict := errors.AsType[*engine.ConflictError](r.err); r.err != nil && !conflict {
			return true, r.err
		}
	}
	if err := tx.Commit(); err != nil {
		// SQLite rolls back when the disk has no space for the log. After any other failure
		// of COMMIT it is unknown whether the log reached the disk.
		return fairlead.CodeOf(sqlitedb.Classify("commit", err)) == fairlead.CodeDiskFull, err
	}
	now = t.now
	for k, it := range known {
		if _, changed := now[k]; !changed && !t.gone[k] {
			now[k] = it
		}
	}
	if e.records != nil {
		signal(e.changed)
	}
	if t.any {
		signal(e.noted)
	}
	return true, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // the reader has not received the previous value yet
	}
}

// transaction is the writer's statements in one transaction.
type transaction struct {
	writers
	records func(engine.Key) bool
	notes   bool
	any     bool // a change with a note was recorded
	// known has items as they were before the transaction; now has those that it has written, and gone those that it has deleted. An item
	// that none of them has must be read.
	known, now map[engine.Key]engine.Item
	gone       map[engine.Key]bool
}

// apply runs one commit in the transaction. The commit sees the changes of the earlier
// commits of the batch. apply compares every precondition before the first write, so it
// writes all or nothing.
func (t *transaction) apply(ctx context.Context, r *request) error {
	versions := make([]int64, len(r.writes))
	for i, w := range r.writes {
		version, _, err := t.stored(ctx, w.Item.Key)
		if err != nil {
			return err
		}
		if !w.Holds(version) {
			return t.conflict(ctx, r, w)
		}
		versions[i] = version
	}
	for i, w := range r.writes {
		err := t.record(ctx, w, versions[i])
		if err != nil {
			return err
		}
		switch w.Op {
		case engine.Put:
			_, err = t.put.ExecContext(ctx, values(&w.Item, versions[i]+1, r.token)...)
			t.now[w.Item.Key] = written(w.Item, versions[i]+1, r.token)
			delete(t.gone, w.Item.Key)
		case engine.Delete:
			_, err = t.del.ExecContext(ctx, []byte(w.Item.Key.Partition), []byte(w.Item.Key.Sort))
			delete(t.now, w.Item.Key)
			t.gone[w.Item.Key] = true
		case engine.Check:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// written returns an item as a read of it would, after a commit has written it.
func written(it engine.Item, version int64, token string) engine.Item {
	it = clone(it)
	it.Version, it.Token, it.Note = version, token, nil
	if it.Body == nil {
		it.Body = []byte{} // as it is stored
	}
	it.Expires = engine.ExpiryTime(engine.ExpirySeconds(it.Expires))
	return it
}

// stored returns the version and token of the item at k, or 0 and "".
func (t transaction) stored(ctx context.Context, k engine.Key) (version int64, token string, err error) {
	if t.gone[k] {
		return 0, "", nil
	}
	for _, items := range []map[engine.Key]engine.Item{t.now, t.known} {
		if it, ok := items[k]; ok {
			return it.Version, it.Token, nil
		}
	}
	err = t.peek.QueryRowContext(ctx, []byte(k.Partition), []byte(k.Sort)).Scan(&version, &token)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", nil
	}
	return version, token, err
}

// conflict returns the conflict at the write w. If the request repeats a commit that already
// happened, conflict returns nil.
func (t transaction) conflict(ctx context.Context, r *request, w engine.Write) error {
	again, err := engine.Repeated(r.token, r.writes, func(k engine.Key) (string, error) {
		_, token, err := t.stored(ctx, k)
		return token, err
	})
	if again || err != nil {
		return err
	}
	c := &engine.ConflictError{Key: w.Item.Key, If: w.If}
	it, err := get(ctx, t.get, w.Item.Key)
	switch {
	case err == nil:
		c.Current = &it
	case !errors.Is(err, engine.ErrNotFound):
		return err
	}
	return c
}
