package sqlite

import (
	"context"
	"database/sql"

	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Recorded is a recorded change with its sequence number. Later commits have greater
// sequence numbers.
type Recorded struct {
	Sequence int64
	engine.Change
}

const (
	recordSQL = `INSERT INTO changes (partition, sort, old_version, old_body, version, body)
SELECT ?1, ?2, (SELECT version FROM items WHERE partition = ?1 AND sort = ?2), (SELECT body FROM items WHERE partition = ?1 AND sort = ?2), ?3, ?4`
	recordNotedSQL = `INSERT INTO noted (partition, sort, old_version, old_body, version, body, note)
SELECT ?1, ?2, (SELECT version FROM items WHERE partition = ?1 AND sort = ?2), (SELECT body FROM items WHERE partition = ?1 AND sort = ?2), ?3, ?4, ?5`
	notedSQL   = "SELECT sequence, partition, sort, old_version, old_body, version, body, note FROM noted WHERE sequence > ? ORDER BY sequence LIMIT ?"
	changesSQL = "SELECT sequence, partition, sort, old_version, old_body, version, body FROM changes ORDER BY sequence LIMIT ?"
)

// Changes returns up to limit recorded changes that Forget has not deleted yet, in the order
// of their commits; see Options.Record. In package dynamo, the table's stream has the same
// purpose. The items of a change have only their key, version and body.
func (e *Engine) Changes(ctx context.Context, limit int) ([]Recorded, error) {
	rows, err := e.db.Read.QueryContext(ctx, changesSQL, limit)
	return recorded(rows, err, false)
}

// Noted returns up to limit changes with a note whose sequence number is greater than after, in the order of their commits;
// see Options.Notes. The items of a change have only their key, version, body and note.
func (e *Engine) Noted(ctx context.Context, after int64, limit int) ([]Recorded, error) {
	rows, err := e.db.Read.QueryContext(ctx, notedSQL, after, limit)
	return recorded(rows, err, true)
}

func recorded(rows *sql.Rows, err error, noted bool) (list []Recorded, _ error) {
	err = sqlitedb.Each(rows, err, func(row *sql.Rows) error {
		var r Recorded
		var partition, sort, oldBody, body, note []byte
		var oldVersion, version *int64
		to := []any{&r.Sequence, &partition, &sort, &oldVersion, &oldBody, &version, &body}
		if noted {
			to = append(to, &note)
		}
		if err := row.Scan(to...); err != nil {
			return err
		}
		r.Key = engine.Key{Partition: string(partition), Sort: string(sort)}
		if oldVersion != nil {
			r.Old = &engine.Item{Key: r.Key, Version: *oldVersion, Body: oldBody}
		}
		if version != nil {
			r.New = &engine.Item{Key: r.Key, Version: *version, Body: body, Note: note}
		}
		list = append(list, r)
		return nil
	})
	return list, sqlitedb.Classify("read changes", err)
}

// Forget deletes the changes whose sequence number is at most through.
func (e *Engine) Forget(ctx context.Context, through int64) error {
	return e.forget(ctx, "DELETE FROM changes WHERE sequence <= ?", through)
}

// ForgetNoted deletes the changes of Noted whose sequence number is at most through.
func (e *Engine) ForgetNoted(ctx context.Context, through int64) error {
	return e.forget(ctx, "DELETE FROM noted WHERE sequence <= ?", through)
}

func (e *Engine) forget(ctx context.Context, statement string, through int64) error {
	select {
	case e.writer <- struct{}{}:
		defer func() { <-e.writer }()
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := e.db.Write.ExecContext(ctx, statement, through)
	return sqlitedb.Classify("forget changes", err)
}

// NotedChange returns a channel that receives a value after changes with a note were recorded.
func (e *Engine) NotedChange() <-chan struct{} { return e.noted }

// Changed returns a channel that receives a value after changes were recorded.
func (e *Engine) Changed() <-chan struct{} { return e.changed }

// record records the change that a write makes. It must run before the write, because it
// reads the old item.
func (t *transaction) record(ctx context.Context, w engine.Write, version int64) error {
	if w.Op == engine.Check {
		return nil
	}
	var now, body any
	if w.Op == engine.Put {
		now, body = version+1, append([]byte{}, w.Item.Body...)
	}
	partition, sort := []byte(w.Item.Key.Partition), []byte(w.Item.Key.Sort)
	if t.notes && len(w.Item.Note) > 0 {
		t.any = true
		if _, err := t.noted.ExecContext(ctx, partition, sort, now, body, w.Item.Note); err != nil {
			return err
		}
	}
	if t.records == nil || !t.records(w.Item.Key) {
		return nil
	}
	_, err := t.note.ExecContext(ctx, partition, sort, now, body)
	return err
}
