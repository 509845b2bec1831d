package sqlite

import (
	"context"
	"database/sql"

	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

const (
	columnList = "partition, sort, version, token, body, list_partition, list_sort, due_partition, due_sort, expires"

	getSQL  = "SELECT " + columnList + " FROM items WHERE partition = ? AND sort = ?"
	peekSQL = "SELECT version, token FROM items WHERE partition = ? AND sort = ?"
	delSQL  = "DELETE FROM items WHERE partition = ? AND sort = ?"

	// ON CONFLICT DO UPDATE does not write the index entries of unchanged index keys.
	// REPLACE would delete and insert all index entries of the item.
	putSQL = "INSERT INTO items (" + columnList + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)" + `
ON CONFLICT (partition, sort) DO UPDATE SET
	version = excluded.version, token = excluded.token, body = excluded.body,
	list_partition = excluded.list_partition, list_sort = excluded.list_sort,
	due_partition = excluded.due_partition, due_sort = excluded.due_sort,
	expires = excluded.expires`
)

// readers are the statements that read. The engine prepares them once, and database/sql
// prepares them again on each connection of the pool.
type readers struct {
	get   *sql.Stmt
	query map[order]*sql.Stmt
}

type writers struct {
	get, peek, put, del, note, noted *sql.Stmt
}

// prepare prepares every statement. A Close of the database closes them.
func (e *Engine) prepare(ctx context.Context) error {
	var all sqlitedb.Statements
	e.read = readers{get: all.Prepare(ctx, e.db.Read, getSQL), query: map[order]*sql.Stmt{}}
	for o, text := range queries() {
		e.read.query[o] = all.Prepare(ctx, e.db.Read, text)
	}
	e.write = writers{
		get:   all.Prepare(ctx, e.db.Write, getSQL),
		peek:  all.Prepare(ctx, e.db.Write, peekSQL),
		put:   all.Prepare(ctx, e.db.Write, putSQL),
		del:   all.Prepare(ctx, e.db.Write, delSQL),
		note:  all.Prepare(ctx, e.db.Write, recordSQL),
		noted: all.Prepare(ctx, e.db.Write, recordNotedSQL),
	}
	return all.Err()
}

// row has the columns of one item in the order of columnList. Keys are strings, because
// database/sql would copy byte slices a second time.
type row struct {
	version                 int64
	token                   string
	partition, sort         string
	body                    []byte
	listPartition, listSort sql.NullString // NULL: not in the index
	duePartition, dueSort   sql.NullString
	expires                 sql.Null[int64]
}

func scan(from interface{ Scan(...any) error }) (engine.Item, error) {
	var r row
	err := from.Scan(&r.partition, &r.sort, &r.version, &r.token, &r.body,
		&r.listPartition, &r.listSort, &r.duePartition, &r.dueSort, &r.expires)
	if err != nil {
		return engine.Item{}, err
	}
	return engine.Item{
		Key:     engine.Key{Partition: r.partition, Sort: r.sort},
		Version: r.version,
		Token:   r.token,
		Body:    r.body,
		List:    place(r.listPartition, r.listSort),
		Due:     place(r.duePartition, r.dueSort),
		Expires: engine.ExpiryTime(r.expires.V),
	}, nil
}

func place(partition, sort sql.NullString) *engine.Key {
	if !partition.Valid {
		return nil
	}
	return &engine.Key{Partition: partition.String, Sort: sort.String}
}

// values returns the arguments of putSQL.
func values(it *engine.Item, version int64, token string) []any {
	body := it.Body
	if body == nil {
		body = []byte{} // nil would be stored as NULL
	}
	args := []any{[]byte(it.Key.Partition), []byte(it.Key.Sort), version, token, body}
	for _, p := range []*engine.Key{it.List, it.Due} {
		if p == nil {
			args = append(args, nil, nil)
		} else {
			args = append(args, []byte(p.Partition), []byte(p.Sort))
		}
	}
	expires := engine.ExpirySeconds(it.Expires)
	return append(args, sql.Null[int64]{V: expires, Valid: expires != 0})
}
