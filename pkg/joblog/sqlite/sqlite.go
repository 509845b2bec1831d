// Package sqlite is a job log in two SQLite tables, for a control plane on one
// machine: one row for each stream, with its running size and checksum, and
// one for each piece that was appended. Both change in the transaction that
// Append commits, so the checksum always is that of the bytes.
package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"hash/crc32"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/internal/wake"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// maxChunk is the most bytes in one row: a read that wants a few bytes loads
// no more than this for them.
const maxChunk = 64 << 10

// Log is a joblog.Log. Safe for concurrent use. Followers are woken by changes
// made through the same Log.
type Log struct {
	db    *sqlitedb.DB
	board wake.Board

	statements sqlitedb.Statements
	open       *sql.Stmt
	fenced     *sql.Stmt
	end        *sql.Stmt
	insert     *sql.Stmt
	grow       *sql.Stmt
	find       *sql.Stmt // on the writing connection, as compare is
	compare    *sql.Stmt
	look       *sql.Stmt // the same two on a reading one
	read       *sql.Stmt
}

var _ joblog.Log = (*Log)(nil)

// New returns the log in db, a file of the log's own (see sqlitedb), and
// brings its schema up to date. The caller closes the log and then db.
func New(db *sqlitedb.DB) (*Log, error) {
	// Opening is bounded by the database's busy timeout and has no caller to
	// go away.
	ctx := context.Background()
	if err := db.Migrate(ctx, migrations); err != nil {
		return nil, err
	}
	l := &Log{db: db}
	l.open = l.statements.Prepare(ctx, db.Write, openStream)
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

// Close releases the log's statements; it does not close the database. No
// other method may be running.
func (l *Log) Close() error {
	return sqlitedb.Classify("close log", l.statements.Close())
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
	added, err := changed(l.open.ExecContext(ctx, s.Job, s.Epoch))
	if err == nil && !added { // it was there before, or is fenced
		var fenced bool
		if err = l.fenced.QueryRowContext(ctx, s.Job, s.Epoch).Scan(&fenced); err == nil && fenced {
			err = joblog.ErrFenced
		}
	}
	return sqlitedb.Classify("open log "+s.String(), err)
}

// changed reports whether a statement changed a row.
func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
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
	err = l.write(ctx, func(tx *sql.Tx) error {
		st, err := findIn(ctx, tx.StmtContext(ctx, l.find), s)
		if err != nil {
			return err
		}
		fresh, err := st.fresh(offset, data, func(n int64) ([]byte, error) {
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

// fresh decides what an append does: it returns the part of data that is not
// stored yet, or why it is refused. stored returns the first n bytes that are
// stored from offset on.
func (st stream) fresh(offset int64, data []byte, stored func(n int64) ([]byte, error)) ([]byte, error) {
	closed := st.fenced || st.info.Ended
	if offset > st.info.Size { // first: further out, the sum below overflows
		if closed {
			return nil, joblog.ErrFenced
		}
		return nil, &joblog.OffsetError{Want: st.info.Size}
	}
	end := offset + int64(len(data))
	switch {
	case closed && end > st.info.Size:
		return nil, joblog.ErrFenced
	case end > joblog.MaxStream:
		return nil, joblog.ErrFull
	}
	overlap := min(end, st.info.Size) - offset
	if overlap == 0 {
		return data, nil
	}
	old, err := stored(overlap)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(old, data[:overlap]) {
		return data[overlap:], nil
	}
	if closed {
		return nil, joblog.ErrFenced
	}
	return nil, joblog.ErrDiverged
}

func findIn(ctx context.Context, find *sql.Stmt, s joblog.Stream) (stream, error) {
	st := stream{info: joblog.Info{Stream: s}}
	err := find.QueryRowContext(ctx, s.Job, s.Epoch).
		Scan(&st.id, &st.info.Size, &st.info.CRC32, &st.info.Ended, &st.info.Truncated, &st.fenced)
	if errors.Is(err, sql.ErrNoRows) {
		return stream{}, joblog.ErrNotFound
	}
	return st, err
}

// readIn returns the stored bytes from offset to end, which must be stored.
func readIn(ctx context.Context, read *sql.Stmt, id, offset, end int64) (_ []byte, err error) {
	rows, err := read.QueryContext(ctx, id, offset, end)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	data := make([]byte, 0, end-offset)
	for rows.Next() {
		var start int64
		var chunk sql.RawBytes // copied once, below
		if err := rows.Scan(&start, &chunk); err != nil {
			return nil, err
		}
		from, to := max(offset-start, 0), min(end-start, int64(len(chunk)))
		data = append(data, chunk[from:to]...)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if int64(len(data)) != end-offset {
		return nil, errors.New("the stored chunks have a gap")
	}
	return data, nil
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
		// Without bytes there is nothing to make durable: should the power take
		// the stream, whoever reads it finds as much as was ever there.
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
	rows, err := l.end.QueryContext(ctx, truncated, s.Job, s.Epoch)
	if err != nil {
		return 0, err
	}
	found := false
	for rows.Next() { // to the end, which is where the statement commits
		found = true
		if err := rows.Scan(&size); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || found {
		return size, err
	}
	st, err := findIn(ctx, l.find, s) // it has ended before, or was never opened
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
	// Most readers stand at the end: for them the one statement is the snapshot.
	// On the writing connection, because after each commit a reading one has to
	// forget every page it knows.
	if st, err := findIn(ctx, l.find, s); err != nil || offset >= st.info.Size {
		return joblog.Chunk{Info: st.info, Next: offset, Ended: st.info.Ended}, err
	}
	// One snapshot for both statements: a Drop between them would leave a
	// size without bytes.
	tx, err := l.db.Read.BeginTx(ctx, nil)
	if err != nil {
		return joblog.Chunk{}, err
	}
	defer func() { _ = tx.Rollback() }() // it only reads
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

// Streams implements joblog.Log.
func (l *Log) Streams(ctx context.Context, job string) ([]joblog.Info, error) {
	if err := joblog.CheckJob(job); err != nil {
		return nil, err
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := l.list(ctx, job)
	if err != nil {
		return nil, sqlitedb.Classify("list logs of job "+job, err)
	}
	return infos, nil
}

func (l *Log) list(ctx context.Context, job string) (_ []joblog.Info, err error) {
	rows, err := l.db.Read.QueryContext(ctx, listStreams, job)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var infos []joblog.Info
	for rows.Next() {
		i := joblog.Info{Stream: joblog.Stream{Job: job}}
		if err := rows.Scan(&i.Stream.Epoch, &i.Size, &i.CRC32, &i.Ended, &i.Truncated); err != nil {
			return nil, err
		}
		infos = append(infos, i)
	}
	return infos, rows.Err()
}

// Drop implements joblog.Log.
func (l *Log) Drop(ctx context.Context, job string) error {
	if err := joblog.CheckJob(job); err != nil {
		return err
	}
	var dropped []joblog.Stream
	err := l.write(ctx, func(tx *sql.Tx) (err error) {
		rows, err := tx.QueryContext(ctx, dropJob, job)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			s := joblog.Stream{Job: job}
			if err := rows.Scan(&s.Epoch); err != nil {
				return err
			}
			dropped = append(dropped, s)
		}
		return rows.Err()
	})
	if err != nil {
		return sqlitedb.Classify("drop logs of job "+job, err)
	}
	l.board.Changed(dropped...)
	return nil
}

// write runs do in one transaction. Nothing is stored unless do and the commit
// return nil.
func (l *Log) write(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := l.db.Write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
