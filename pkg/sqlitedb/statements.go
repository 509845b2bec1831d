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
