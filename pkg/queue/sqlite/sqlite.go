// Package sqlite is a queue in one SQLite table, for messages that a control plane on one machine must not lose, such as
// the events for webhooks. A message is one row. The row has the time at which the message becomes visible, the number of
// its deliveries, and whether it is a dead letter. A receipt contains the row's id and the number of the delivery. So the
// next delivery makes the receipt invalid without an additional write.
//
// Send, Receive, Delete and Extend write with one conditional statement each. One statement is a transaction by itself,
// and costs half as much as a transaction with BEGIN and COMMIT. All statements, also reads, use the writing connection.
// A separate reading connection would have to drop its page cache after each commit of the writing connection. This
// costs more than waiting for such short statements.
//
// Receivers never poll the table. They wait in package longpoll. Send and timers wake them. For an empty queue, Receive
// only reads and takes no write lock.
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

// defaultMaxReceives is the number of deliveries after which a message becomes a dead letter, unless Options.MaxReceives
// is set.
const defaultMaxReceives = 5

// maxDead is the maximum number of dead letters that one call returns. It limits the memory of a call: 64 bodies of
// queue.MaxBody are 16 MiB.
const maxDead = 64

// Options of New. The zero value is for production.
type Options struct {
	// Now returns the time; nil: time.Now. The time must advance with the process's timers, as time.Now does, also in a
	// synctest bubble.
	Now func() time.Time

	// MaxReceives is the number of deliveries after which a message becomes a dead letter; 0: 5.
	MaxReceives int
}

// Queue is a queue.Queue. Safe for concurrent use.
type Queue struct {
	db          *sqlitedb.DB
	now         func() time.Time
	maxReceives int
	board       *longpoll.Board

	statements sqlitedb.Statements
	first      *sql.Stmt
	know       *sql.Stmt
	insert     *sql.Stmt
	take       *sql.Stmt
	bury       *sql.Stmt
	delete     *sql.Stmt
	extend     *sql.Stmt
}

var _ queue.Queue = (*Queue)(nil)

// New returns the queue in db, a file that only the queue uses (see sqlitedb), and migrates its schema. The caller
// closes the queue and then db.
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
	// The database's busy timeout limits the time of New. The caller cannot cancel New.
	ctx := context.Background()
	if err := db.Migrate(ctx, migrations); err != nil {
		return nil, err
	}
	q := &Queue{db: db, now: opts.Now, maxReceives: opts.MaxReceives, board: longpoll.NewBoard(opts.Now)}
	q.first = q.statements.Prepare(ctx, db.Write, firstMessage)
	q.know = q.statements.Prepare(ctx, db.Write, knowMessage)
	q.insert = q.statements.Prepare(ctx, db.Write, insertMessage)
	q.take = q.statements.Prepare(ctx, db.Write, takeMessage)
	q.bury = q.statements.Prepare(ctx, db.Write, buryMessage)
	q.delete = q.statements.Prepare(ctx, db.Write, deleteMessage)
	q.extend = q.statements.Prepare(ctx, db.Write, extendMessage)
	if err := q.statements.Err(); err != nil {
		return nil, sqlitedb.Classify("prepare the queue's statements", err)
	}
	return q, nil
}

// Close releases the queue's statements. It does not close the database. No other method may run at the same time.
func (q *Queue) Close() error {
	return sqlitedb.Classify("close queue", q.statements.Close())
}

// Send implements queue.Queue.
func (q *Queue) Send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	if err := queue.CheckSend(name, body, delay); err != nil {
		return err
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
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

// takeFirst is a longpoll.Take. It reads the first message before it takes the message with a write. So waiting receivers
// and idle runners never block a writer.
func (q *Queue) takeFirst(ctx context.Context, name string, hide time.Duration) (m queue.Message, next time.Time, err error) {
	if ctx, err = sqlitedb.Short(ctx); err != nil {
		return queue.Message{}, time.Time{}, err
	}
	for {
		now := q.now()
		f, err := q.look(ctx, name)
		switch {
		case err != nil:
			return queue.Message{}, time.Time{}, err
		case f.at.After(now) || f.at.IsZero():
			return queue.Message{}, f.at, queue.ErrNoMessage
		case f.receives >= q.maxReceives:
			if _, err := q.bury.ExecContext(ctx, f.id, now.UnixNano(), q.maxReceives); err != nil {
				return queue.Message{}, time.Time{}, err
			}
			continue
		}
		next := now.Add(hide)
		m, err := q.takeAt(ctx, name, now, next)
		if err == nil {
			return m, next, nil
		}
		if !errors.Is(err, queue.ErrNoMessage) {
			return queue.Message{}, time.Time{}, err
		}
		// Another receiver took the message first, or moved it to the dead letters. In each round at least one receiver
		// makes progress, so the loop ends.
	}
}

// first is the message with the earliest time at which it becomes visible, in the past or future. The zero value means
// that there is no message.
type first struct {
	id       int64
	at       time.Time
	receives int
}

// look returns the first message.
func (q *Queue) look(ctx context.Context, name string) (first, error) {
	var f first
	var nanos int64
	err := q.first.QueryRowContext(ctx, name).Scan(&f.id, &nanos, &f.receives)
	if errors.Is(err, sql.ErrNoRows) {
		return first{}, nil
	}
	f.at = time.Unix(0, nanos)
	return f, err
}

// takeAt takes the first message if it is visible now, and hides it until next. Otherwise it returns
// queue.ErrNoMessage.
func (q *Queue) takeAt(ctx context.Context, name string, now, next time.Time) (m queue.Message, err error) {
	found := false
	rows, err := q.take.QueryContext(ctx, name, now.UnixNano(), q.maxReceives, next.UnixNano())
	err = sqlitedb.Each(rows, err, func(row *sql.Rows) error {
		var id int64
		err := row.Scan(&id, &m.Body, &m.Receives)
		m.ID, m.Receipt, found = strconv.FormatInt(id, 10), receipt(id, m.Receives), true
		return err
	})
	if err != nil {
		return queue.Message{}, err
	}
	if !found {
		return queue.Message{}, queue.ErrNoMessage
	}
	return m, nil
}

// Delete implements queue.Queue.
func (q *Queue) Delete(ctx context.Context, name, receipt string) error {
	if err := queue.CheckName(name); err != nil {
		return err
	}
	id, delivery, ok := parseReceipt(receipt)
	if !ok {
		return fmt.Errorf("delete from queue %s: %w", name, queue.ErrReceipt)
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return err
	}
	done, err := sqlitedb.Changed(q.delete.ExecContext(ctx, id, name, delivery))
	if err == nil && !done {
		var one int
		if err = q.know.QueryRowContext(ctx, id).Scan(&one); err == nil {
			err = queue.ErrReceipt
		} else if errors.Is(err, sql.ErrNoRows) {
			err = nil // the message is deleted already: no error
		}
	}
	return sqlitedb.Classify("delete from queue "+name, err)
}

// Extend implements queue.Queue.
func (q *Queue) Extend(ctx context.Context, name, receipt string, hide time.Duration) error {
	if err := queue.CheckExtend(name, hide); err != nil {
		return err
	}
	id, delivery, ok := parseReceipt(receipt)
	if !ok {
		return fmt.Errorf("extend in queue %s: %w", name, queue.ErrReceipt)
	}
	ctx, err := sqlitedb.Short(ctx)
	if err != nil {
		return err
	}
	now := q.now()
	at := now.Add(hide)
	done, err := sqlitedb.Changed(q.extend.ExecContext(ctx, at.UnixNano(), id, name, delivery, now.UnixNano()))
	if err == nil && !done {
		err = queue.ErrReceipt
	}
	if err != nil {
		return sqlitedb.Classify("extend in queue "+name, err)
	}
	q.board.Visible(name, at)
	return nil
}

// DeadLetters implements queue.Queue. One call returns at most 64 dead letters.
func (q *Queue) DeadLetters(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	if err := queue.CheckDeadLetters(name, limit); err != nil {
		return nil, err
	}
	var dead []queue.Message
	err := q.db.Update(ctx, func(tx *sql.Tx) (err error) {
		// If the visibility timeout of a message's last delivery has passed, the next Receive moves the message to the
		// dead letters. On a queue without receivers, this statement moves such messages.
		if _, err := tx.ExecContext(ctx, buryAll, name, q.now().UnixNano(), q.maxReceives); err != nil {
			return err
		}
		if dead, err = readDead(ctx, tx, name, min(limit, maxDead)); err != nil {
			return err
		}
		for _, m := range dead {
			if _, err := tx.ExecContext(ctx, removeMessage, m.ID); err != nil {
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

func readDead(ctx context.Context, tx *sql.Tx, name string, limit int) (dead []queue.Message, err error) {
	rows, err := tx.QueryContext(ctx, deadMessages, name, limit)
	err = sqlitedb.Each(rows, err, func(row *sql.Rows) error {
		var m queue.Message
		err := row.Scan(&m.ID, &m.Body, &m.Receives)
		dead = append(dead, m)
		return err
	})
	return dead, err
}

// Drop implements queue.Queue.
func (q *Queue) Drop(ctx context.Context, name string) error {
	if err := queue.CheckName(name); err != nil {
		return err
	}
	_, err := q.db.Write.ExecContext(ctx, dropQueue, name)
	return sqlitedb.Classify("drop queue "+name, err)
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
