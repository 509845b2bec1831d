// Package sqlite is a queue in one SQLite table, for a control plane on one
// machine. A message is one row: the time at which it becomes visible, how
// often it was delivered, and whether it is a dead letter. A receipt is the
// row's id and the number of the delivery, so the next delivery makes it
// invalid without anything being written for it.
//
// Receivers never poll the table. They wait in package longpoll, which Send
// and the clock wake; a look at an empty queue reads and takes no write lock.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/internal/longpoll"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// defaultMaxReceives is after how many deliveries a message is a dead letter,
// unless Options say otherwise. A wake-up is deleted when its job is claimed,
// before the job runs, so five failures in a row mean a runner that cannot
// claim at all.
const defaultMaxReceives = 5

// maxDead is the most dead letters one call takes, which bounds its memory:
// 64 bodies of queue.MaxBody are 16 MiB.
const maxDead = 64

// Options of New. The zero value is right for production.
type Options struct {
	// Now tells the time; nil: time.Now. It must advance with the process's
	// timers, as it does within a synctest bubble.
	Now func() time.Time

	// MaxReceives is after how many deliveries a message becomes a dead
	// letter; 0: 5.
	MaxReceives int
}

// Queue is a queue.Queue. Safe for concurrent use.
type Queue struct {
	db          *sqlitedb.DB
	now         func() time.Time
	maxReceives int
	board       *longpoll.Board

	statements sqlitedb.Statements
	peek       *sql.Stmt // firstMessage, on a reading connection
	insert     *sql.Stmt
	first      *sql.Stmt
	take       *sql.Stmt
	bury       *sql.Stmt
	find       *sql.Stmt
	remove     *sql.Stmt
	extend     *sql.Stmt
}

var _ queue.Queue = (*Queue)(nil)

// New returns the queue in db, a file of the queue's own (see sqlitedb), and
// brings its schema up to date. The caller closes the queue and then db.
func New(db *sqlitedb.DB, opts Options) (*Queue, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.MaxReceives == 0 {
		opts.MaxReceives = defaultMaxReceives
	}
	if opts.MaxReceives < 0 {
		panic("queue/sqlite: MaxReceives is negative")
	}
	// Opening is bounded by the database's busy timeout and has no caller to
	// go away.
	ctx := context.Background()
	if err := db.Migrate(ctx, migrations); err != nil {
		return nil, err
	}
	q := &Queue{db: db, now: opts.Now, maxReceives: opts.MaxReceives, board: longpoll.NewBoard(opts.Now)}
	q.peek = q.statements.Prepare(ctx, db.Read, firstMessage)
	q.insert = q.statements.Prepare(ctx, db.Write, insertMessage)
	q.first = q.statements.Prepare(ctx, db.Write, firstMessage)
	q.take = q.statements.Prepare(ctx, db.Write, takeMessage)
	q.bury = q.statements.Prepare(ctx, db.Write, buryMessage)
	q.find = q.statements.Prepare(ctx, db.Write, findMessage)
	q.remove = q.statements.Prepare(ctx, db.Write, deleteMessage)
	q.extend = q.statements.Prepare(ctx, db.Write, extendMessage)
	if err := q.statements.Err(); err != nil {
		return nil, sqlitedb.Classify("prepare the queue's statements", err)
	}
	return q, nil
}

// Close releases the queue's statements; it does not close the database. No
// other method may be running.
func (q *Queue) Close() error {
	return sqlitedb.Classify("close queue", q.statements.Close())
}

// Send implements queue.Queue.
func (q *Queue) Send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	if err := queue.CheckSend(name, body, delay); err != nil {
		return err
	}
	at := q.now().Add(delay)
	if _, err := q.insert.ExecContext(ctx, name, at.UnixNano(), body); err != nil {
		return sqlitedb.Classify("send to queue "+name, err)
	}
	q.board.Visible(name, at)
	return nil
}

// Receive implements queue.Queue.
func (q *Queue) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	if err := queue.CheckReceive(name, hide, wait); err != nil {
		return queue.Message{}, err
	}
	m, err := q.board.Receive(ctx, name, wait, func(ctx context.Context) (queue.Message, time.Time, error) {
		return q.takeFirst(ctx, name, hide)
	})
	if err != nil && !errors.Is(err, queue.ErrNoMessage) {
		return queue.Message{}, sqlitedb.Classify("receive from queue "+name, err)
	}
	return m, err
}

// takeFirst is a longpoll.Take. It looks before it takes, so that waiting
// receivers and idle runners never hold up a writer.
func (q *Queue) takeFirst(ctx context.Context, name string, hide time.Duration) (m queue.Message, next time.Time, err error) {
	next, visible, err := q.look(ctx, name)
	if err != nil {
		return queue.Message{}, time.Time{}, err
	}
	if !visible {
		return queue.Message{}, next, queue.ErrNoMessage
	}
	var found error
	err = q.write(ctx, func(tx *sql.Tx) error {
		m, next, found = q.takeIn(ctx, tx, name, hide)
		if errors.Is(found, queue.ErrNoMessage) {
			return nil // commit the dead letters that were passed
		}
		return found
	})
	if err != nil {
		return queue.Message{}, time.Time{}, err
	}
	return m, next, found
}

// look returns when the first message becomes visible and whether it is, with
// a zero time when there is none.
func (q *Queue) look(ctx context.Context, name string) (at time.Time, visible bool, err error) {
	var id, receives, nanos int64
	err = q.peek.QueryRowContext(ctx, name).Scan(&id, &nanos, &receives)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	at = time.Unix(0, nanos)
	return at, !at.After(q.now()), nil
}

// takeIn takes the first visible message, having buried those before it that
// were delivered too often. next is when the message, or when there is none
// the first hidden one, becomes visible.
func (q *Queue) takeIn(ctx context.Context, tx *sql.Tx, name string, hide time.Duration) (m queue.Message, next time.Time, err error) {
	now := q.now()
	for {
		var id, nanos int64
		var receives int
		err := tx.StmtContext(ctx, q.first).QueryRowContext(ctx, name).Scan(&id, &nanos, &receives)
		if errors.Is(err, sql.ErrNoRows) {
			return queue.Message{}, time.Time{}, queue.ErrNoMessage
		}
		if err != nil {
			return queue.Message{}, time.Time{}, err
		}
		if at := time.Unix(0, nanos); at.After(now) {
			return queue.Message{}, at, queue.ErrNoMessage
		}
		if receives >= q.maxReceives {
			if _, err := tx.StmtContext(ctx, q.bury).ExecContext(ctx, id); err != nil {
				return queue.Message{}, time.Time{}, err
			}
			continue
		}
		next := now.Add(hide)
		m := queue.Message{ID: strconv.FormatInt(id, 10)}
		err = tx.StmtContext(ctx, q.take).QueryRowContext(ctx, next.UnixNano(), id).Scan(&m.Body, &m.Receives)
		if err != nil {
			return queue.Message{}, time.Time{}, err
		}
		m.Receipt = receipt(id, m.Receives)
		return m, next, nil
	}
}

// Delete implements queue.Queue.
func (q *Queue) Delete(ctx context.Context, name, receipt string) error {
	if err := queue.CheckName(name); err != nil {
		return err
	}
	err := q.write(ctx, func(tx *sql.Tx) error {
		id, _, err := q.owned(ctx, tx, name, receipt)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = tx.StmtContext(ctx, q.remove).ExecContext(ctx, id)
		return err
	})
	return sqlitedb.Classify("delete from queue "+name, err)
}

// Extend implements queue.Queue.
func (q *Queue) Extend(ctx context.Context, name, receipt string, hide time.Duration) error {
	if err := queue.CheckExtend(name, hide); err != nil {
		return err
	}
	var at time.Time
	err := q.write(ctx, func(tx *sql.Tx) error {
		id, until, err := q.owned(ctx, tx, name, receipt)
		if errors.Is(err, sql.ErrNoRows) {
			return queue.ErrReceipt
		}
		if err != nil {
			return err
		}
		now := q.now()
		if !until.After(now) {
			return queue.ErrReceipt
		}
		at = now.Add(hide)
		_, err = tx.StmtContext(ctx, q.extend).ExecContext(ctx, at.UnixNano(), id)
		return err
	})
	if err != nil {
		return sqlitedb.Classify("extend in queue "+name, err)
	}
	q.board.Visible(name, at)
	return nil
}

// owned returns the message whose latest delivery has the receipt and the time
// until which it is hidden; ErrReceipt when another delivery has it, and
// sql.ErrNoRows when it is gone.
func (q *Queue) owned(ctx context.Context, tx *sql.Tx, name, receipt string) (id int64, until time.Time, err error) {
	id, delivery, ok := parseReceipt(receipt)
	if !ok {
		return 0, time.Time{}, queue.ErrReceipt
	}
	var owner string
	var nanos int64
	var receives int
	if err := tx.StmtContext(ctx, q.find).QueryRowContext(ctx, id).Scan(&owner, &nanos, &receives); err != nil {
		return 0, time.Time{}, err
	}
	if owner != name || receives != delivery {
		return 0, time.Time{}, queue.ErrReceipt
	}
	return id, time.Unix(0, nanos), nil
}

// DeadLetters implements queue.Queue; it takes at most 64 at a time.
func (q *Queue) DeadLetters(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	if err := queue.CheckDeadLetters(name, limit); err != nil {
		return nil, err
	}
	var dead []queue.Message
	err := q.write(ctx, func(tx *sql.Tx) (err error) {
		// A message whose last delivery ran out is buried by the next Receive;
		// on a queue that nobody reads any more, this does it.
		if _, err := tx.ExecContext(ctx, buryAll, name, q.now().UnixNano(), q.maxReceives); err != nil {
			return err
		}
		if dead, err = readDead(ctx, tx, name, min(limit, maxDead)); err != nil {
			return err
		}
		for _, m := range dead {
			if _, err := tx.StmtContext(ctx, q.remove).ExecContext(ctx, m.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, sqlitedb.Classify("take dead letters of queue "+name, err)
	}
	return dead, nil
}

func readDead(ctx context.Context, tx *sql.Tx, name string, limit int) (_ []queue.Message, err error) {
	rows, err := tx.QueryContext(ctx, deadMessages, name, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var dead []queue.Message
	for rows.Next() {
		var m queue.Message
		if err := rows.Scan(&m.ID, &m.Body, &m.Receives); err != nil {
			return nil, err
		}
		dead = append(dead, m)
	}
	return dead, rows.Err()
}

// Drop implements queue.Queue.
func (q *Queue) Drop(ctx context.Context, name string) error {
	if err := queue.CheckName(name); err != nil {
		return err
	}
	_, err := q.db.Write.ExecContext(ctx, dropQueue, name)
	return sqlitedb.Classify("drop queue "+name, err)
}

// write runs do in one transaction. Nothing is stored unless do and the commit
// return nil.
func (q *Queue) write(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := q.db.Write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func receipt(id int64, delivery int) string {
	return fmt.Sprintf("%d.%d", id, delivery)
}

func parseReceipt(s string) (id int64, delivery int, ok bool) {
	left, right, found := strings.Cut(s, ".")
	id, err1 := strconv.ParseInt(left, 10, 64)
	delivery, err2 := strconv.Atoi(right)
	return id, delivery, found && err1 == nil && err2 == nil
}
