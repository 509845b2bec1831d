// Package dynamo stores job logs in their own DynamoDB table. On AWS, all readers of the
// control plane use this table. Package cloudwatch transports the logs through CloudWatch,
// but the read quotas of CloudWatch are too small for readers.
// docs/contributing/decisions/logs-on-aws-are-in-dynamodb.md has the reasons.
package dynamo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/internal/wake"
	"github.com/fairlead/fairlead/pkg/retry"
)

// Options are the location and the limits of the index.
type Options struct {
	// Table is the name of the table. The table has the schema that
	// dynamotest.CreateLogTable creates.
	Table string
	// Prefix is the start of the partition keys. Logs with different prefixes are separate.
	Prefix string
	// Poll is the interval at which a follower reads the stream again, to find bytes that
	// another process has appended. A read without new bytes costs one read unit.
	Poll time.Duration
	// Keep is the time from an append until DynamoDB may remove its bytes; 0: 7 days. Before that, Move must have moved
	// the stream.
	Keep time.Duration
	// Now is the clock. It is required.
	Now func() time.Time
	// MaxStream is the maximum number of bytes in one stream; 0: joblog.MaxStream.
	MaxStream int64
}

// Index is a joblog.Log. Safe for concurrent use. A change through the same Index wakes its
// followers at once; other followers see the change within Options.Poll.
type Index struct {
	client  *dynamodb.Client
	options Options
	board   wake.Board
	codec   codec
}

var _ joblog.Mover = (*Index)(nil)

// attemptTimeout limits one attempt of one request; see package store/dynamo.
const attemptTimeout = 10 * time.Second

// defaultKeep is longer than the longest job and the retries of its archiving together. CloudWatch Logs keeps its copy
// for longer.
const defaultKeep = 7 * 24 * time.Hour

// New returns the log with the options o. It sends no request.
func New(cfg aws.Config, o Options) (*Index, error) {
	if o.Table == "" || o.Poll <= 0 || o.Now == nil {
		return nil, fairlead.Invalid(fairlead.CodeInvalidLogOptions, "the options of a log need a table, a poll interval and a clock")
	}
	o.Keep = cmp.Or(o.Keep, defaultKeep)
	o.MaxStream = cmp.Or(o.MaxStream, joblog.MaxStream)
	c, err := newCodec()
	if err != nil {
		return nil, fmt.Errorf("prepare the compression of logs: %w", err)
	}
	return &Index{client: dynamodb.NewFromConfig(awsapi.Bound(cfg, attemptTimeout)), options: o, codec: c}, nil
}

// Open implements joblog.Log.
func (l *Index) Open(ctx context.Context, s joblog.Stream) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	return l.change(ctx, "open log "+s.String(), func() error {
		fence, err := l.fence(ctx, s.Job)
		switch {
		case err != nil:
			return err
		case fence > s.Epoch:
			return joblog.ErrFenced
		case fence == s.Epoch:
			return nil
		}
		var old stream
		if fence > 0 {
			old, err = l.stream(ctx, joblog.Stream{Job: s.Job, Epoch: fence})
			if errors.Is(err, joblog.ErrNotFound) {
				return errRefused // the job was dropped in the meantime
			}
			if err != nil {
				return err
			}
		}
		return l.transact(ctx, l.openWrites(s, old)...)
	})
}

// Append implements joblog.Log.
func (l *Index) Append(ctx context.Context, s joblog.Stream, offset int64, data []byte) (int64, error) {
	if err := cmp.Or(joblog.CheckAppend(s, offset, data), ctx.Err()); err != nil {
		return 0, err
	}
	grown := false
	err := l.change(ctx, "append to log "+s.String(), func() error {
		st, err := l.stream(ctx, s)
		if err != nil {
			return err
		}
		fresh, err := joblog.Fresh(st.info, st.fenced, l.options.MaxStream, offset, data, func(n int64) ([]byte, error) { return l.stored(ctx, st, offset, n) })
		if err != nil || len(fresh) == 0 {
			return err
		}
		grown = true // also if the response is lost
		return l.put(ctx, st, fresh)
	})
	if err != nil {
		return 0, err
	}
	if grown {
		l.board.Changed(s)
	}
	return offset + int64(len(data)), nil
}

// stored returns n bytes of the stream from offset. The stream must have these bytes. If
// another store has them, stored returns joblog.ErrMoved.
func (l *Index) stored(ctx context.Context, st stream, offset, n int64) ([]byte, error) {
	if st.moved {
		return nil, joblog.ErrMoved
	}
	data, err := l.bytes(ctx, st, offset, offset+n)
	if err == nil {
		return data, nil
	}
	if now, gone := l.stream(ctx, st.info.Stream); gone == nil && now.moved {
		return nil, joblog.ErrMoved // the stream was moved in the meantime
	}
	return nil, err
}

// End implements joblog.Log.
func (l *Index) End(ctx context.Context, s joblog.Stream, truncated bool) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	err := l.change(ctx, "end log "+s.String(), func() error {
		st, err := l.stream(ctx, s)
		if err != nil || st.info.Ended {
			return err
		}
		return l.transact(ctx, l.closeWrites(st, "SET ended = :yes, truncated = :t", item{":yes": boolean(true), ":t": boolean(truncated || st.info.Cut)})...)
	})
	if err == nil {
		l.board.Changed(s)
	}
	return err
}

// Move implements joblog.Mover. It marks the stream as moved. DynamoDB removes the bytes when their time to live is over.
func (l *Index) Move(ctx context.Context, info joblog.Info) error {
	if err := cmp.Or(joblog.CheckMove(info), ctx.Err()); err != nil {
		return err
	}
	s := info.Stream
	return l.change(ctx, "move log "+s.String(), func() error {
		st, err := l.stream(ctx, s)
		if err != nil {
			return err
		}
		if st.moved {
			return nil
		}
		if !st.info.Ended || st.info.Size > info.Size {
			return joblog.NotMovable(st.info)
		}
		_, err = l.client.UpdateItem(ctx, l.moveUpdate(st, info))
		if isRefused(err) || inConflict(err) {
			return errRefused
		}
		return err
	})
}

// Read implements joblog.Log.
func (l *Index) Read(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	if err := cmp.Or(joblog.CheckRead(s, offset, limit), ctx.Err()); err != nil {
		return joblog.Chunk{}, err
	}
	c, _, err := l.read(ctx, s, offset, limit)
	return c, err
}

// read is Read for valid arguments. It also returns the stream if there is no error.
func (l *Index) read(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, stream, error) {
	st, err := l.stream(ctx, s)
	var c joblog.Chunk
	if err == nil {
		c, err = l.chunk(ctx, st, offset, limit)
	}
	if errors.Is(err, joblog.ErrMoved) {
		return c, st, err
	}
	if err != nil {
		return joblog.Chunk{}, st, classify(ctx, "read log "+s.String(), err)
	}
	return c, st, nil
}

func (l *Index) chunk(ctx context.Context, st stream, offset int64, limit int) (joblog.Chunk, error) {
	var err error
	s := st.info.Stream
	c := joblog.Chunk{Info: st.info, Next: offset}
	if st.moved && offset < st.info.Size {
		return c, joblog.ErrMoved
	}
	if offset < st.info.Size {
		end := min(offset+int64(min(limit, joblog.MaxRead)), st.info.Size)
		if c.Data, err = l.bytes(ctx, st, offset, end); err != nil {
			now, gone := l.stream(ctx, s)
			if gone != nil || now.id != st.id {
				return joblog.Chunk{}, cmp.Or(gone, joblog.ErrNotFound) // the stream was dropped in the meantime
			}
			if now.moved { // the stream was moved in the meantime
				return joblog.Chunk{Info: now.info, Next: offset}, joblog.ErrMoved
			}
			if errors.Is(err, errGap) && now.info.Ended {
				// Each append is stored whole before the end is stored, so DynamoDB removed the pieces that are missing.
				err = joblog.ErrExpired
			}
			return joblog.Chunk{}, err
		}
		c.Next = end
	}
	c.Ended = st.info.Ended && c.Next >= st.info.Size
	return c, nil
}

// Follow implements joblog.Log.
func (l *Index) Follow(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	if err := joblog.CheckRead(s, offset, limit); err != nil {
		return joblog.Chunk{}, err
	}
	last := joblog.Chunk{Next: offset, Info: joblog.Info{Stream: s}}
	for ctx.Err() == nil {
		interval, cancel := context.WithTimeout(ctx, l.options.Poll)
		c, err := l.board.Follow(interval, s, offset, func(context.Context) (joblog.Chunk, error) {
			c, st, err := l.read(ctx, s, offset, limit) // may take longer than the interval
			if err == nil && len(c.Data) == 0 && !st.closed() {
				l.noteFollower(ctx, st)
			}
			return c, err
		})
		cancel()
		if err != nil || len(c.Data) > 0 || c.Ended {
			return c, err
		}
		last = c
	}
	return last, nil
}

// followedFor is how long a stream counts as followed after a reader has followed it. It is longer than the pause between
// two requests of a reader, and than the time between two renewals of a lease.
const followedFor = 30 * time.Second

// noteFollower notes that a reader follows the open stream. The writer may be connected to another process, so the note is
// in the table. A stream gets at most one note in half of followedFor. Without the note only the writer's pace is slower, so
// an error is ignored; the follower's next read tries again.
func (l *Index) noteFollower(ctx context.Context, st stream) {
	now := l.options.Now().Unix()
	if st.followed < now+int64(followedFor/2/time.Second) {
		_ = l.note(ctx, st, now+int64(followedFor/time.Second))
	}
}

// Followed implements joblog.Log. It costs half a read unit.
func (l *Index) Followed(ctx context.Context, s joblog.Stream) (bool, error) {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return false, err
	}
	st, err := l.item(ctx, s, false)
	if err != nil {
		return false, classify(ctx, "look for followers of log "+s.String(), err)
	}
	if st.info.Cut && !st.info.Ended {
		return false, joblog.ErrCut
	}
	return !st.closed() && st.followed > l.options.Now().Unix(), nil
}

// Cut implements joblog.Log.
func (l *Index) Cut(ctx context.Context, s joblog.Stream) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	return l.change(ctx, "cut log "+s.String(), func() error {
		st, err := l.item(ctx, s, true)
		if err != nil || st.info.Ended || st.info.Cut {
			return err
		}
		return l.cut(ctx, st)
	})
}

// Spend implements joblog.Log. It costs a read unit and a write unit.
func (l *Index) Spend(ctx context.Context, runner string, n int64, b joblog.Budget, now time.Time) (left bool, err error) {
	if err := cmp.Or(joblog.CheckSpend(runner, n), ctx.Err()); err != nil {
		return false, err
	}
	err = l.change(ctx, "count log bytes of runner "+runner, func() error {
		old, err := l.account(ctx, runner)
		if err != nil {
			return err
		}
		var a joblog.Account
		if a, left = b.Take(old, n, now); !left || n == 0 {
			return nil
		}
		return l.spend(ctx, runner, old, a, a.At.Add(b.Full(a)+time.Hour))
	})
	return left && err == nil, err
}

// Streams implements joblog.Log.
func (l *Index) Streams(ctx context.Context, job string) ([]joblog.Info, error) {
	if err := cmp.Or(joblog.CheckJob(job), ctx.Err()); err != nil {
		return nil, err
	}
	streams, err := l.streams(ctx, job)
	if err != nil {
		return nil, classify(ctx, "list logs of job "+job, err)
	}
	var infos []joblog.Info
	for _, st := range streams {
		infos = append(infos, st.info)
	}
	return infos, nil
}

// Drop implements joblog.Log. It removes the fence first. If Drop is interrupted, Open can
// still create streams of the job, and replaces a stream that Drop left. The next Drop
// removes everything that an interrupted Drop left.
func (l *Index) Drop(ctx context.Context, job string) error {
	if err := cmp.Or(joblog.CheckJob(job), ctx.Err()); err != nil {
		return err
	}
	op := "drop logs of job " + job
	streams, err := l.streams(ctx, job)
	if err == nil {
		err = l.remove(ctx, job, streams)
	}
	if err != nil {
		return classify(ctx, op, err)
	}
	for _, st := range streams {
		l.board.Changed(st.info.Stream)
	}
	return nil
}

// errRefused reports that the condition of a write did not hold, because another writer had
// changed the log.
var errRefused = errors.New("another writer changed the log")

// The attempts of a change. The delays are short, because DynamoDB refuses a conflicting
// change at once and the other change has succeeded. Attempts count from 0. The delay after
// attempt n is random, below 5 ms · 2ⁿ and below half a second.
const (
	maxAttempts = 40
	firstDelay  = 5 * time.Millisecond
	maxDelay    = 500 * time.Millisecond
)

// change calls do again while do returns errRefused, up to maxAttempts times. do reads the
// log, and then writes on condition that the log is unchanged. If the response of a write
// was lost, do can be repeated safely: it reads the log again and finds the bytes stored.
func (l *Index) change(ctx context.Context, op string, do func() error) error {
	for attempt := 0; ; attempt++ {
		err := do()
		if !errors.Is(err, errRefused) || attempt == maxAttempts {
			return classify(ctx, op, err)
		}
		if err := pause(ctx, attempt); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
}

// pause waits a random time after the given attempt, which counts from 0.
func pause(ctx context.Context, attempt int) error {
	return retry.Sleep(ctx, rand.N(min(maxDelay, firstDelay<<min(attempt, 10))))
}

func classify(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errRefused) {
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeLogContended,
			Message: op + ": too many concurrent writers", Hint: "Repeat the request in a while.", Err: err,
		}
	}
	_, gap := errors.AsType[*joblog.OffsetError](err)
	if gap || errors.Is(err, joblog.ErrNotFound) || errors.Is(err, joblog.ErrFenced) || errors.Is(err, joblog.ErrDiverged) || errors.Is(err, joblog.ErrFull) || errors.Is(err, joblog.ErrCut) || errors.Is(err, joblog.ErrMoved) || errors.Is(err, joblog.ErrExpired) ||
		fairlead.KindOf(err) == fairlead.KindConflict {
		return err
	}
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
		return &fairlead.Error{
			Kind: fairlead.KindInternal, Code: fairlead.CodeTableMissing,
			Message: op + ": the log's table does not exist", Hint: "Check the table's name, and the account and region.", Err: err,
		}
	}
	return awsapi.Classify(ctx, "DynamoDB", op, err)
}

// checksum returns the checksum of a stream after data is appended to it.
func checksum(sum uint32, data []byte) uint32 { return crc32.Update(sum, crc32.IEEETable, data) }
