package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
)

// Statements prepares the statements of one owner and closes them with it. The
// zero value is ready. Not safe for concurrent use; the statements are.
type Statements struct {
	all []*sql.Stmt
	err error
}

// Prepare prepares a statement on one of a DB's pools. After a failure it
// returns nil, and does nothing more: the owner asks Err once, at the end.
func (s *Statements) Prepare(ctx context.Context, on *sql.DB, text string) *sql.Stmt {
	if s.err != nil {
		return nil
	}
	stmt, err := on.PrepareContext(ctx, text)
	if err != nil {
		s.err = err
		return nil
	}
	s.all = append(s.all, stmt)
	return stmt
}

// Err returns why a statement could not be prepared, having closed the others.
func (s *Statements) Err() error {
	if s.err != nil {
		_ = s.Close() // the first error is the one to tell
	}
	return s.err
}

// Close closes every statement. None of them may be in use.
func (s *Statements) Close() error {
	var errs []error
	for _, stmt := range s.all {
		errs = append(errs, stmt.Close())
	}
	s.all = nil
	return errors.Join(errs...)
}

// Short returns the context for a statement that takes so little time that
// nobody would give it up half way: one that does not end, unless ctx has ended
// already. The driver watches a context that can end by a goroutine for each
// statement, which costs as much as the statement does; and a write that is
// given up has an unclear outcome. The database's busy timeout bounds it.
func Short(ctx context.Context) (context.Context, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return context.WithoutCancel(ctx), nil
}

// Each hands every row of a query's answer to do, to the end, which is where a
// statement that also writes commits. The first error of any kind ends it.
func Each(rows *sql.Rows, err error, do func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := do(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// Changed reports whether a statement changed a row.
func Changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// Update runs do in one transaction. Nothing is stored unless do and the commit
// return nil.
func (d *DB) Update(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := d.Write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
