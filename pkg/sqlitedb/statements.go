package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
)

// Statements prepares a set of statements and closes them together. The zero value is
// ready. Not safe for concurrent use; the statements are.
type Statements struct {
	all []*sql.Stmt
	err error
}

// Prepare prepares a statement on one of a DB's pools. After a failure it returns nil and
// does nothing, so the caller needs to call Err only once at the end.
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

// Err returns the first error of Prepare. If there is one, it closes the statements that
// were prepared before.
func (s *Statements) Err() error {
	if s.err != nil {
		_ = s.Close() // the caller needs the first error
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

// Short returns a context that never ends, for a short statement. It returns an error if ctx has ended. The database's
// busy timeout limits the statement. There are two reasons not to use ctx. For a context that can end, the driver
// starts a goroutine for each statement, which costs as much as the statement. And a cancelled write has an unknown
// outcome.
func Short(ctx context.Context) (context.Context, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return context.WithoutCancel(ctx), nil
}

// Each calls do for every row of a query. It reads to the end, because a statement that
// also writes commits there. It stops at the first error.
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

// Update runs do in one transaction. It stores nothing unless do and the commit return nil.
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
