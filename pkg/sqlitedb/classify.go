package sqlitedb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Classify wraps an error of the database with op, which names the operation and its
// object. It converts faults of the environment (a full disk, a read-only folder, a lock
// held too long, a failing or damaged disk) to a *fairlead.Error. It only wraps a
// *fairlead.Error or the end of a context. It returns nil for nil.
func Classify(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fairlead.Error](err); ok {
		return fmt.Errorf("%s: %w", op, err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", op, err)
	}
	code := codeOf(err)
	e := &fairlead.Error{Kind: fairlead.KindUnavailable, Code: code, Err: err}
	switch code {
	case fairlead.CodeDiskFull:
		e.Message = op + ": the disk is full"
		e.Hint = "Free some disk space, then repeat the request. All confirmed changes are stored."
	case fairlead.CodeDataReadOnly:
		e.Message = op + ": the data folder is not writable"
		e.Hint = "Check the folder's owner and mode, whether its file system is mounted read-only, " +
			"and whether the process has run out of open files."
	case fairlead.CodeDataBusy:
		e.Message = op + ": another connection kept the database locked"
		e.Hint = "Check whether a backup or another tool has the file open, then repeat the request."
	case fairlead.CodeDataIO:
		e.Message = op + ": the disk reported an error"
		e.Hint = "Check the disk and the system's log, then repeat the request."
	case fairlead.CodeDataCorrupt:
		e.Kind = fairlead.KindInternal
		e.Message = op + ": the file is damaged or is not a database"
		e.Hint = "Restore the file from a backup. It was not changed."
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
	return e
}

// codeOf returns the code of a fault of the environment, or "".
func codeOf(err error) fairlead.Code {
	if s, ok := errors.AsType[*sqlite.Error](err); ok {
		// On a full disk, SQLite reports this I/O error when it extends the memory-mapped
		// index of the log. No other operation resizes that file.
		if s.Code() == sqlite3.SQLITE_IOERR_SHMSIZE {
			return fairlead.CodeDiskFull
		}
		switch s.Code() & 0xff { // the low byte is the primary code
		case sqlite3.SQLITE_FULL:
			return fairlead.CodeDiskFull
		case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
			return fairlead.CodeDataReadOnly
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			return fairlead.CodeDataBusy
		case sqlite3.SQLITE_IOERR:
			return fairlead.CodeDataIO
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fairlead.CodeDataCorrupt
		}
		return ""
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fairlead.CodeDiskFull
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fairlead.CodeDataReadOnly
	case errors.Is(err, syscall.EIO):
		return fairlead.CodeDataIO
	}
	return ""
}
