// Package archive keeps the logs of jobs that are over as blobs, one for each
// stream, and reads them from there. It stands on a log that gives its bytes
// away, on any blob store, and on nothing else.
//
// A blob is a gzip file that every tool opens, in members of a mebibyte each,
// with their index in the header of the first; so a reader with a cursor
// unpacks no more than it wants. Its key has the size and checksum of the
// stream, which the log keeps: a blob that is not what the log says is never
// read, and two who archive at once cannot mix what they found.
package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/joblog"
)

// Record is another copy of a log, in which more of it may be found than its
// writer got across: the log group that a step wrote to before it died.
type Record interface {
	// Rest returns the bytes of the stream that follow those of have, as far as
	// they are there without a gap; none is no error. end is what the stream's
	// writer said of it when it ended, nil if it did not.
	Rest(ctx context.Context, have joblog.Info) (rest []byte, end *joblog.Info, err error)
}

// Log is a log whose streams go to blobs when Keep is called for their job,
// and are read from there. Safe for concurrent use; many may share one log and
// one blob store.
type Log struct {
	joblog.Mover
	blobs blob.Store
	cache *cache
}

var _ joblog.Log = (*Log)(nil)

// New returns the log on live, whose ended streams are kept in blobs.
func New(live joblog.Mover, blobs blob.Store) *Log {
	return &Log{Mover: live, blobs: blobs, cache: newCache()}
}

// Kept counts what Keep did.
type Kept struct {
	Streams   int   // that were moved
	Bytes     int64 // of these
	Found     int64 // bytes of these that only the record had
	Truncated int   // streams of these that lack something for good
}

// ErrOpen says that a stream of the job has not ended.
var ErrOpen = errors.New("a log of the job has not ended")

// Keep moves every stream of the job to a blob. What its writer lost is looked
// for in record, if that is not nil; only where the writer's own word on size
// and checksum is met is a stream no longer called truncated. Repeating it is
// no error. It returns ErrOpen when a stream has not ended, after it has moved
// the others.
func (l *Log) Keep(ctx context.Context, job string, record Record) (Kept, error) {
	var k Kept
	infos, err := l.Streams(ctx, job)
	if err != nil {
		return k, err
	}
	open := false
	for _, info := range infos {
		if !info.Ended {
			open = true
			continue
		}
		if err := l.keep(ctx, info, record, &k); err != nil {
			return k, fmt.Errorf("archive log %s: %w", info.Stream, err)
		}
	}
	if open {
		return k, fmt.Errorf("archive logs of job %s: %w", job, ErrOpen)
	}
	return k, nil
}

func (l *Log) keep(ctx context.Context, info joblog.Info, record Record, k *Kept) error {
	data, err := l.stored(ctx, info)
	if errors.Is(err, joblog.ErrMoved) {
		return l.Move(ctx, info) // which removes what an interrupted Move has left
	}
	if err != nil {
		return err
	}
	var rest []byte
	if info.Truncated && record != nil {
		var end *joblog.Info
		if rest, end, err = record.Rest(ctx, info); err != nil {
			return err
		}
		rest = rest[:min(int64(len(rest)), joblog.MaxStream-info.Size)]
		data = append(data, rest...)
		info.Size, info.CRC32 = int64(len(data)), crc32.ChecksumIEEE(data)
		if end != nil && end.Size == info.Size && end.CRC32 == info.CRC32 {
			info.Truncated = end.Truncated
		}
	}
	if len(data) > 0 {
		if err := l.put(ctx, info, data); err != nil {
			return err
		}
	}
	if err := l.Move(ctx, info); err != nil {
		return err
	}
	k.Streams++
	k.Bytes += info.Size
	k.Found += int64(len(rest))
	if info.Truncated {
		k.Truncated++
	}
	return nil
}

// stored reads all of an ended stream.
func (l *Log) stored(ctx context.Context, info joblog.Info) ([]byte, error) {
	data := make([]byte, 0, info.Size)
	for int64(len(data)) < info.Size {
		c, err := l.Mover.Read(ctx, info.Stream, int64(len(data)), joblog.MaxRead)
		if err != nil {
			return nil, err
		}
		if len(c.Data) == 0 {
			return nil, fmt.Errorf("it ends at byte %d of %d", len(data), info.Size)
		}
		data = append(data, c.Data...)
	}
	if crc32.ChecksumIEEE(data) != info.CRC32 {
		return nil, errors.New("its bytes do not have its checksum")
	}
	return data, nil
}

// put stores the stream, and reads it back: the log drops its bytes next.
func (l *Log) put(ctx context.Context, info joblog.Info, data []byte) error {
	file, err := pack(info, data)
	if err != nil {
		return err
	}
	key := blobKey(info)
	if err := l.blobs.Put(ctx, key, file); err != nil {
		return err
	}
	got, err := l.blobs.Get(ctx, key)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, file) {
		return fmt.Errorf("blob %s is not what was put", key)
	}
	again, err := openFile(info, got)
	if err != nil {
		return err
	}
	for at := int64(0); at < info.Size; at += frame { // all at once would be the log in memory twice
		end := min(at+frame, info.Size)
		back, err := again.read(at, end)
		if err != nil {
			return err
		}
		if !bytes.Equal(back, data[at:end]) {
			return fmt.Errorf("blob %s does not hold its log", key)
		}
	}
	return nil
}

// Read implements joblog.Log.
func (l *Log) Read(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	c, err := l.Mover.Read(ctx, s, offset, limit)
	if errors.Is(err, joblog.ErrMoved) {
		return l.chunk(ctx, c.Info, offset, limit)
	}
	return c, err
}

// Follow implements joblog.Log. A stream that has moved has ended, so there is
// nothing to wait for.
func (l *Log) Follow(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	c, err := l.Mover.Follow(ctx, s, offset, limit)
	if errors.Is(err, joblog.ErrMoved) {
		return l.chunk(ctx, c.Info, offset, limit)
	}
	return c, err
}

func (l *Log) chunk(ctx context.Context, info joblog.Info, offset int64, limit int) (joblog.Chunk, error) {
	end := min(offset+int64(min(limit, joblog.MaxRead)), info.Size)
	data, err := l.archived(ctx, info, offset, end)
	if err != nil {
		return joblog.Chunk{}, err
	}
	return joblog.Chunk{Data: data, Next: end, Info: info, Ended: end == info.Size}, nil
}

// Append implements joblog.Log. What has moved takes nothing, and acknowledges
// again what it has.
func (l *Log) Append(ctx context.Context, s joblog.Stream, offset int64, data []byte) (int64, error) {
	next, err := l.Mover.Append(ctx, s, offset, data)
	if !errors.Is(err, joblog.ErrMoved) {
		return next, err
	}
	c, err := l.Mover.Read(ctx, s, offset, 1)
	if !errors.Is(err, joblog.ErrMoved) {
		return 0, cmp.Or(err, error(joblog.ErrFenced)) // dropped, or opened anew, meanwhile
	}
	end := offset + int64(len(data))
	old, err := l.archived(ctx, c.Info, offset, end)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(old, data) {
		return 0, joblog.ErrFenced
	}
	return end, nil
}

// archived returns the bytes from offset to end, which the stream has.
func (l *Log) archived(ctx context.Context, info joblog.Info, offset, end int64) ([]byte, error) {
	key := blobKey(info)
	f := l.cache.get(key)
	if f == nil {
		b, err := l.blobs.Get(ctx, key)
		if errors.Is(err, blob.ErrNotFound) {
			// Dropped meanwhile, or removed by the lifecycle of the bucket.
			return nil, joblog.ErrNotFound
		}
		if err == nil {
			f, err = openFile(info, b)
		}
		if err != nil {
			return nil, fmt.Errorf("read archived log %s: %w", info.Stream, err)
		}
		l.cache.put(key, f)
	}
	data, err := f.read(offset, end)
	if err != nil {
		return nil, fmt.Errorf("read archived log %s: %w", info.Stream, err)
	}
	return data, nil
}

// Drop implements joblog.Log. The blobs go first: what an interrupted Drop
// leaves is found by the next.
func (l *Log) Drop(ctx context.Context, job string) error {
	if err := cmp.Or(joblog.CheckJob(job), ctx.Err()); err != nil {
		return err
	}
	keys, err := l.blobs.List(ctx, jobKey(job))
	if err != nil {
		return fmt.Errorf("drop archived logs of job %s: %w", job, err)
	}
	for _, key := range keys {
		if err := l.blobs.Delete(ctx, key); err != nil {
			return fmt.Errorf("drop archived logs of job %s: %w", job, err)
		}
		l.cache.drop(key)
	}
	return l.Mover.Drop(ctx, job)
}
