// Package sqlite is a job log in two SQLite tables, for a control plane on one machine. The
// table log_streams has a row for each stream, with its size and checksum. The table
// log_chunks has a row for each chunk. Append changes both tables in one transaction, so the
// checksum always matches the bytes.
//
// A new stream of a job's first attempt has no row until it has a byte or ends. If the process is
// killed before, the stream is lost, and its writer, which gets joblog.ErrNotFound, opens it again.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/internal/wake"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// maxChunk is the maximum number of bytes in one chunk. A small maximum keeps short reads
// cheap, because a read loads whole chunks.
const maxChunk = 64 << 10

// Log is a joblog.Log. Safe for concurrent use. A change wakes only the followers of the
// same Log.
type Log struct {
	db    *sqlitedb.DB
	board wake.Board

	mu     sync.Mutex
	opened map[string]bool // the jobs whose first attempt has an open stream without a row

	statements sqlitedb.Statements
	open       *sql.Stmt
	openEnded  *sql.Stmt
	any        *sql.Stmt
	fenced     *sql.Stmt
	end        *sql.Stmt
	insert     *sql.Stmt
	grow       *sql.Stmt
	find       *sql.Stmt // findStream on the connection that writes
	compare    *sql.Stmt // readChunks on the connection that writes
	look       *sql.Stmt // findStream on the connections that read
	read       *sql.Stmt // readChunks on the connections that read
}

var _ joblog.Log = (*Log)(nil)

// New returns the log that is stored in db, and migrates the schema. The file of db is only
// for the log (see sqlitedb). The caller closes the log first, and then db.
func New(db *sqlitedb.DB) (*Log, error) {
	// The caller cannot cancel New. The busy timeout of the database limits its duration.
	ctx := context.Background()
	if err := db.Migrate(ctx, migrations); err != nil {
		return nil, err
	}
	l := &Log{db: db, opened: map[string]bool{}}
	l.open = l.statements.Prepare(ctx, db.Write, openStream)
	l.openEnded = l.statements.Prepare(ctx, db.Write, openEnded)
	l.any = l.statements.Prepare(ctx, db.Write, anyStream)
	l.fenced = l.statements.Prepare(ctx, db.Write, fencedStream)
	l.end = l.statements.Prepare(ctx, db.Write, endStream)
	l.insert = l.statements.Prepare(ctx, db.Write, insertChunk)
	l.grow = l.statements.Prepare(ctx, db.Write, growStream)
	l.find = l.statements.Prepare(ctx, db.Write, findStream)
	l.compare = l.statements.Prepare(ctx, db.Write, readChunks)
	l.look = l.statements.Prepare(ctx, db.Read, findStream)
	l.read = l.statements.Prepare(ctx, db.Read, readChunks)
	if err := l.statements.Err(); err != nil {
		return nil, sqlitedb.Classify("prepare the log's statements", err)
	}
	return l, nil
}

// Close stores the streams that have no row, and closes the log's statements, but not the database.
// No other method may run at the same time.
func (l *Log) Close() error {
	var errs []error
	for job := range l.opened {
		errs = append(errs, l.keep(context.Background(), joblog.Stream{Job: job, Epoch: 1}))
	}
	return sqlitedb.Classify("close log", errors.Join(append(errs, l.statements.Close())...))
}

// isOpened reports whether the stream is open without a row. A caller asks before it looks for the
// row: the row exists before the stream stops being one without.
func (l *Log) isOpened(s joblog.Stream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.Epoch == 1 && l.opened[s.Job]
}

func (l *Log) setOpened(s joblog.Stream, opened bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if opened {
		l.opened[s.Job] = true
	} else {
		delete(l.opened, s.Job)
	}
}

// keep stores a stream that is open without a row.
func (l *Log) keep(ctx context.Context, s joblog.Stream) error {
	if !l.isOpened(s) {
		return nil
	}
	if _, err := l.open.ExecContext(ctx, s.Job, s.Epoch); err != nil {
		return err
	}
	l.setOpened(s, false)
	return nil
}

// Open implements joblog.Log.
func (l *Log) Open(ctx context.Context, s joblog.Stream) error {
	if err := joblog.CheckStream(s); err != nil {
		return err
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return err
	}
	if s.Epoch == 1 {
		var exists bool
		if err := l.any.QueryRowContext(ctx, s.Job).Scan(&exists); err != nil || !exists {
			if err == nil {
				l.setOpened(s, true)
			}
			return sqlitedb.Classify("open log "+s.String(), err)
		}
	} else if err := l.keep(ctx, joblog.Stream{Job: s.Job, Epoch: 1}); err != nil {
		return sqlitedb.Classify("open log "+s.String(), err)
	}
	added, err := sqlitedb.Changed(l.open.ExecContext(ctx, s.Job, s.Epoch))
	if err == nil && !added { // the stream exists or is fenced
		var fenced bool
		if err = l.fenced.QueryRowContext(ctx, s.Job, s.Epoch).Scan(&fenced); err == nil && fenced {
			err = joblog.ErrFenced
		}
	}
	return sqlitedb.Classify("open log "+s.String(), err)
}

// Append implements joblog.Log.
func (l *Log) Append(ctx context.Context, s joblog.Stream, offset int64, data []byte) (int64, error) {
	if err := joblog.CheckAppend(s, offset, data); err != nil {
		return 0, err
	}
	grown := false
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return 0, err
	}
	opened := false
	err = l.db.Update(ctx, func(tx *sql.Tx) error {
		// Drop writes on the same connection. Outside of the transaction, a Drop after this question would be undone.
		if opened = l.isOpened(s); opened {
			if _, err := tx.StmtContext(ctx, l.open).ExecContext(ctx, s.Job, s.Epoch); err != nil {
				return err
			}
		}
		st, err := findIn(ctx, tx.StmtContext(ctx, l.find), s)
		if err != nil {
			return err
		}
		fresh, err := joblog.Fresh(st.info, st.fenced, joblog.MaxStream, offset, data, func(n int64) ([]byte, error) {
			return readIn(ctx, tx.StmtContext(ctx, l.compare), st.id, offset, offset+n)
		})
		if err != nil || len(fresh) == 0 {
			return err
		}
		grown = true
		return l.store(ctx, tx, st, fresh)
	})
	if err != nil {
		return 0, sqlitedb.Classify("append to log "+s.String(), err)
	}
	if opened && grown {
		l.setOpened(s, false)
	}
	if grown {
		l.board.Changed(s)
	}
	return offset + int64(len(data)), nil
}

// store adds data to the end of the stream.
func (l *Log) store(ctx context.Context, tx *sql.Tx, st stream, data []byte) error {
	insert := tx.StmtContext(ctx, l.insert)
	at := st.info.Size
	for rest := data; len(rest) > 0; {
		chunk := rest[:min(len(rest), maxChunk)]
		if _, err := insert.ExecContext(ctx, st.id, at, chunk); err != nil {
			return err
		}
		at += int64(len(chunk))
		rest = rest[len(chunk):]
	}
	sum := crc32.Update(st.info.CRC32, crc32.IEEETable, data)
	_, err := tx.StmtContext(ctx, l.grow).ExecContext(ctx, at, sum, st.id)
	return err
}

// stream is a row of log_streams.
type stream struct {
	id     int64
	info   joblog.Info
	fenced bool
}

func findIn(ctx context.Context, find *sql.Stmt, s joblog.Stream) (stream, error) {
	st := stream{info: joblog.Info{Stream: s}}
	err := find.QueryRowContext(ctx, s.Job, s.Epoch).
		Scan(&st.id, &st.info.Size, &st.info.CRC32, &st.info.Ended, &st.info.Truncated, &st.info.Cut, &st.fenced)
	if errors.Is(err, sql.ErrNoRows) {
		return stream{}, joblog.ErrNotFound
	}
	return st, err
}

// readIn returns the bytes from offset up to, but not including, end. If a byte is not
// stored, it returns an error.
func readIn(ctx context.Context, read *sql.Stmt, id, offset, end int64) ([]byte, error) {
	data := make([]byte, 0, end-offset)
	rows, err := read.QueryContext(ctx, id, offset, end)
	err = sqlitedb.Each(rows, err, func(row *sql.Rows) error {
		var start int64
		var chunk sql.RawBytes // valid only until the next row; append below copies it
		if err := row.Scan(&start, &chunk); err != nil {
			return err
		}
		from, to := max(offset-start, 0), min(end-start, int64(len(chunk)))
		data = append(data, chunk[from:to]...)
		return nil
	})
	if err == nil && int64(len(data)) != end-offset {
		err = errors.New("the stored chunks have a gap")
	}
	return data, err
}

// End implements joblog.Log.
func (l *Log) End(ctx context.Context, s joblog.Stream, truncated bool) error {
	if err := joblog.CheckStream(s); err != nil {
		return err
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return err
	}
	size, err := l.endIn(ctx, s, truncated)
	if err == nil && size > 0 {
		// An empty stream needs no sync: if a power failure removes the stream, no byte is
		// lost.
		err = l.db.Sync()
	}
	if err != nil {
		return sqlitedb.Classify("end log "+s.String(), err)
	}
	l.board.Changed(s)
	return nil
}

// endIn marks the stream as ended and returns its size.
func (l *Log) endIn(ctx context.Context, s joblog.Stream, truncated bool) (size int64, err error) {
	if l.isOpened(s) {
		added, err := sqlitedb.Changed(l.openEnded.ExecContext(ctx, s.Job, s.Epoch, truncated))
		if err != nil {
			return 0, err
		}
		l.setOpened(s, false)
		if added {
			return 0, nil
		}
	}
	found := false
	rows, err := l.end.QueryContext(ctx, truncated, s.Job, s.Epoch)
	err = sqlitedb.Each(rows, err, func(row *sql.Rows) error {
		found = true
		return row.Scan(&size)
	})
	if err != nil || found {
		return size, err
	}
	st, err := findIn(ctx, l.find, s) // no error if the stream has already ended, ErrNotFound if it was never opened
	return st.info.Size, err
}

// Read implements joblog.Log.
func (l *Log) Read(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	if err := joblog.CheckRead(s, offset, limit); err != nil {
		return joblog.Chunk{}, err
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return joblog.Chunk{}, err
	}
	c, err := l.chunk(ctx, s, offset, limit)
	if err != nil {
		return joblog.Chunk{}, sqlitedb.Classify("read log "+s.String(), err)
	}
	return c, nil
}

func (l *Log) chunk(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	opened := l.isOpened(s)
	// Most readers are at the end of the stream and need only this statement. The statement
	// uses the connection that writes, because a connection that reads drops its page cache
	// after each commit.
	if st, err := findIn(ctx, l.find, s); opened && errors.Is(err, joblog.ErrNotFound) {
		return joblog.Chunk{Info: joblog.Info{Stream: s}, Next: offset}, nil
	} else if err != nil || offset >= st.info.Size {
		return joblog.Chunk{Info: st.info, Next: offset, Ended: st.info.Ended}, err
	}
	// Both statements must read the same snapshot. Otherwise a Drop between the statements
	// could remove the bytes after the size was read.
	tx, err := l.db.Read.BeginTx(ctx, nil)
	if err != nil {
		return joblog.Chunk{}, err
	}
	defer func() { _ = tx.Rollback() }() // the transaction only reads
	st, err := findIn(ctx, tx.StmtContext(ctx, l.look), s)
	if err != nil {
		return joblog.Chunk{}, err
	}
	c := joblog.Chunk{Info: st.info, Next: offset}
	if end := min(offset+int64(min(limit, joblog.MaxRead)), st.info.Size); end > offset {
		if c.Data, err = readIn(ctx, tx.StmtContext(ctx, l.read), st.id, offset, end); err != nil {
			return joblog.Chunk{}, err
		}
		c.Next = end
	}
	c.Ended = st.info.Ended && c.Next >= st.info.Size
	return c, nil
}

// Follow implements joblog.Log.
func (l *Log) Follow(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	if err := joblog.CheckRead(s, offset, limit); err != nil {
		return joblog.Chunk{}, err
	}
	return l.board.Follow(ctx, s, offset, func(ctx context.Context) (joblog.Chunk, error) {
		return l.Read(ctx, s, offset, limit)
	})
}

// Followed implements joblog.Log. All followers are in this process.
func (l *Log) Followed(ctx context.Context, s joblog.Stream) (bool, error) {
	if err := joblog.CheckStream(s); err != nil {
		return false, err
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return false, err
	}
	opened := l.isOpened(s)
	st, err := findIn(ctx, l.find, s)
	if opened && errors.Is(err, joblog.ErrNotFound) {
		return l.board.Followed(s), nil
	}
	if err != nil {
		return false, sqlitedb.Classify("look for followers of log "+s.String(), err)
	}
	if st.info.Cut && !st.info.Ended {
		return false, joblog.ErrCut
	}
	return !st.info.Ended && l.board.Followed(s), nil
}

// Cut implements joblog.Log.
func (l *Log) Cut(ctx context.Context, s joblog.Stream) error {
	if err := joblog.CheckStream(s); err != nil {
		return err
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return err
	}
	if err := l.keep(ctx, s); err != nil {
		return sqlitedb.Classify("cut log "+s.String(), err)
	}
	if _, err = l.db.Write.ExecContext(ctx, cutStream, s.Job, s.Epoch); err == nil {
		_, err = findIn(ctx, l.find, s) // ErrNotFound if the stream was never opened
	}
	return sqlitedb.Classify("cut log "+s.String(), err)
}

// Spend implements joblog.Log.
func (l *Log) Spend(ctx context.Context, runner string, n int64, b joblog.Budget, now time.Time) (left bool, err error) {
	if err := joblog.CheckSpend(runner, n); err != nil {
		return false, err
	}
	if ctx, err = sqlitedb.Short(ctx); err != nil {
		return false, err
	}
	err = l.db.Update(ctx, func(tx *sql.Tx) error {
		var a joblog.Account
		var at int64
		switch err := tx.QueryRowContext(ctx, findBudget, runner).Scan(&a.Left, &at); {
		case err == nil:
			a.At = time.Unix(0, at)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		if a, left = b.Take(a, n, now); !left || n == 0 {
			return nil
		}
		_, err := tx.ExecContext(ctx, storeBudget, runner, a.Left, a.At.UnixNano())
		return err
	})
	return left, sqlitedb.Classify("count log bytes of runner "+runner, err)
}

// Streams implements joblog.Log.
func (l *Log) Streams(ctx context.Context, job string) ([]joblog.Info, error) {
	if err := joblog.CheckJob(job); err != nil {
		return nil, err
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return nil, err
	}
	var infos []joblog.Info
	first := joblog.Stream{Job: job, Epoch: 1}
	opened := l.isOpened(first)
	rows, err := l.db.Read.QueryContext(ctx, listStreams, job)
	err = sqlitedb.Each(rows, err, func(row *sql.Rows) error {
		i := joblog.Info{Stream: joblog.Stream{Job: job}}
		err := row.Scan(&i.Stream.Epoch, &i.Size, &i.CRC32, &i.Ended, &i.Truncated, &i.Cut)
		infos = append(infos, i)
		return err
	})
	if err != nil {
		return nil, sqlitedb.Classify("list logs of job "+job, err)
	}
	if opened && (len(infos) == 0 || infos[0].Stream != first) {
		infos = slices.Insert(infos, 0, joblog.Info{Stream: first})
	}
	return infos, nil
}

// Drop implements joblog.Log.
func (l *Log) Drop(ctx context.Context, job string) error {
	if err := joblog.CheckJob(job); err != nil {
		return err
	}
	var dropped []joblog.Stream
	if first := (joblog.Stream{Job: job, Epoch: 1}); l.isOpened(first) {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.setOpened(first, false)
		dropped = append(dropped, first)
	}
	rows, err := l.db.Write.QueryContext(ctx, dropJob, job) // one statement is one transaction
	err = sqlitedb.Each(rows, err, func(row *sql.Rows) error {
		s := joblog.Stream{Job: job}
		err := row.Scan(&s.Epoch)
		dropped = append(dropped, s)
		return err
	})
	if err != nil {
		return sqlitedb.Classify("drop logs of job "+job, err)
	}
	l.board.Changed(dropped...)
	return nil
}
