// Package archive moves the logs of finished jobs to blobs, one blob for each stream, and
// reads the logs from the blobs. It needs only a log that can drop its bytes (joblog.Mover)
// and a blob store.
//
// A blob is a gzip file that every tool can open. Each member of the file has a mebibyte of
// the log. The header of the first member has the index of the other members. So a reader
// that starts at an offset unpacks only the members that it needs.
//
// The blob's key contains the size and checksum of the stream, which the log also stores. So
// a blob with another size or checksum than the stream in the log is never read, and two
// concurrent archivers cannot mix their results.
package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
)

// Record is another copy of a log that may have more bytes than the writer sent to the log.
// An example is the log group that a step wrote to before it died.
type Record interface {
	// Rest returns the bytes of the stream from offset have.Size up to the first gap. If
	// there are no such bytes, rest is empty and err is nil. end has the size and checksum
	// that the writer reported at the end of the stream, or is nil if the writer reported no
	// end.
	Rest(ctx context.Context, have joblog.Info) (rest []byte, end *joblog.Info, err error)
}

// Log is a log that moves a job's streams to blobs when Keep is called, and reads the moved
// streams from the blobs. Safe for concurrent use. Many Logs may share one log and one blob
// store.
type Log struct {
	joblog.Mover
	blobs blob.Store
	cache *cache
}

var (
	_ joblog.Log    = (*Log)(nil)
	_ joblog.Finder = (*Log)(nil)
)

// New returns a log that stores new streams in live and archived streams in blobs.
func New(live joblog.Mover, blobs blob.Store) *Log {
	return &Log{Mover: live, blobs: blobs, cache: newCache()}
}

// Kept counts the results of Keep.
type Kept struct {
	Streams   int   // moved streams
	Bytes     int64 // bytes of the moved streams
	Found     int64 // bytes of the moved streams that only the record had
	Missed    int64 // those of Found that the live log never got
	Truncated int   // moved streams that are still truncated
}

// settled is how long a job must have run before its log shows whether its lines arrive: the
// last lines of a job can arrive after its end.
const settled = 2 * time.Minute

// Archived is the result of Keep for a job that ran for some time.
type Archived struct {
	Kept
	Job string
	Ran time.Duration
}

// LogValue returns the attributes of a log line. A metric of the stack on AWS takes undelivered
// from this line: the bytes that never arrived of a log of which most did not arrive.
func (a Archived) LogValue() slog.Value {
	var undelivered int64
	if a.Ran >= settled && a.Missed > a.Bytes/2 {
		undelivered = a.Missed
	}
	return slog.GroupValue(slog.String("job", a.Job), slog.Int("streams", a.Streams), slog.Int64("bytes", a.Bytes), slog.Int64("found", a.Found),
		slog.Int64("undelivered", undelivered), slog.Int("truncated", a.Truncated))
}

// ErrOpen reports that a stream of the job has not ended.
var ErrOpen = errors.New("a log of the job has not ended")

// Keep moves every ended stream of the job to a blob. If a stream is truncated and record is
// not nil, Keep first adds the bytes that only the record has. A truncated stream stays
// truncated unless its bytes then match the size and checksum that the writer reported. If the
// live log lost the bytes of a stream, Keep takes them from the record.
// Keep does not complete a stream that was cut: its runner's budget counts for the archive, too.
// Repeating Keep is no error. If a stream has not ended, Keep moves the other streams and
// then returns ErrOpen.
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
		return l.Move(ctx, info) // drops the bytes that an interrupted Move left
	}
	var found int64 // bytes that only the record has
	if err != nil {
		if data = recovered(ctx, info, record, err); data == nil {
			return err
		}
		found = info.Size
	}
	var rest []byte
	if info.Truncated && !info.Cut && record != nil {
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
	k.Found += found + int64(len(rest))
	k.Missed += int64(len(rest))
	if info.Truncated {
		k.Truncated++
	}
	return nil
}

// recovered returns the bytes of an ended stream from the record, after the live log failed with err.
// The live log on AWS removes its bytes some days after they were written, and the archive may
// have been out of order for longer; the record keeps them for weeks. recovered returns nil if the
// live log may answer later, or if the record does not have exactly the bytes of the stream.
func recovered(ctx context.Context, info joblog.Info, record Record, err error) []byte {
	if record == nil || ctx.Err() != nil || fairlead.KindOf(err) == fairlead.KindUnavailable {
		return nil
	}
	data, _, err := record.Rest(ctx, joblog.Info{Stream: info.Stream})
	if err != nil || int64(len(data)) < info.Size || crc32.ChecksumIEEE(data[:info.Size]) != info.CRC32 {
		return nil
	}
	return data[:info.Size]
}

// stored reads an ended stream completely.
func (l *Log) stored(ctx context.Context, info joblog.Info) ([]byte, error) {
	data := make([]byte, 0, info.Size)
	for int64(len(data)) < info.Size {
		c, err := l.Mover.Read(ctx, info.Stream, int64(len(data)), joblog.MaxRead)
		if err != nil {
			return nil, err
		}
		if len(c.Data) == 0 {
			return nil, fmt.Errorf("the log ends at byte %d of %d", len(data), info.Size)
		}
		data = append(data, c.Data...)
	}
	if crc32.ChecksumIEEE(data) != info.CRC32 {
		return nil, errors.New("the bytes of the log do not match its checksum")
	}
	return data, nil
}

// put stores the stream as a blob, reads the blob back and compares it with data. The check
// is necessary, because the log drops its bytes after put.
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
		return fmt.Errorf("blob %s differs from the bytes that were stored", key)
	}
	again, err := openFile(info, got)
	if err != nil {
		return err
	}
	for at := int64(0); at < info.Size; at += frame { // in parts, so that the whole log is not in memory twice
		end := min(at+frame, info.Size)
		back, err := again.read(at, end)
		if err != nil {
			return err
		}
		if !bytes.Equal(back, data[at:end]) {
			return fmt.Errorf("blob %s does not contain its log", key)
		}
	}
	return nil
}

// Find implements joblog.Finder. Two archivers may have stored the same stream with different sizes: Find lists the longer one.
// A stream without bytes has no blob, so Find does not list it.
func (l *Log) Find(ctx context.Context, job string) ([]joblog.Info, error) {
	if err := cmp.Or(joblog.CheckJob(job), ctx.Err()); err != nil {
		return nil, err
	}
	keys, err := l.blobs.List(ctx, jobKey(job))
	if err != nil {
		return nil, fmt.Errorf("find archived logs of job %s: %w", job, err)
	}
	longest := map[int64]joblog.Info{} // by epoch
	for _, key := range keys {
		if info, ok := described(job, key); ok && info.Size >= longest[info.Stream.Epoch].Size {
			longest[info.Stream.Epoch] = info
		}
	}
	var found []joblog.Info
	for _, epoch := range slices.Sorted(maps.Keys(longest)) {
		info := longest[epoch]
		f, err := l.open(ctx, info)
		if errors.Is(err, joblog.ErrNotFound) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		info.Truncated = f.Truncated
		found = append(found, info)
	}
	return found, nil
}

// Read implements joblog.Log. It also reads a stream that the live log does not know, if the archive has it.
func (l *Log) Read(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	c, err := l.Mover.Read(ctx, s, offset, limit)
	switch {
	case errors.Is(err, joblog.ErrMoved):
		return l.chunk(ctx, c.Info, offset, limit)
	case errors.Is(err, joblog.ErrNotFound):
		found, failed := l.Find(ctx, s.Job)
		if failed != nil {
			return c, failed
		}
		for _, info := range found {
			switch {
			case info.Stream != s:
			case offset >= info.Size:
				return joblog.Chunk{Next: offset, Info: info, Ended: true}, nil
			default:
				return l.chunk(ctx, info, offset, limit)
			}
		}
	}
	return c, err
}

// Follow implements joblog.Log. A moved stream has ended, so Follow does not wait for it.
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

// Append implements joblog.Log. A moved stream refuses new bytes. If the bytes are already
// in the stream at this offset, Append returns no error.
func (l *Log) Append(ctx context.Context, s joblog.Stream, offset int64, data []byte) (int64, error) {
	next, err := l.Mover.Append(ctx, s, offset, data)
	if !errors.Is(err, joblog.ErrMoved) {
		return next, err
	}
	c, err := l.Mover.Read(ctx, s, offset, 1)
	if !errors.Is(err, joblog.ErrMoved) {
		return 0, cmp.Or(err, error(joblog.ErrFenced)) // the stream was dropped or opened again in the meantime
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

// archived returns the bytes of the blob from offset up to, but not including, end. The
// stream must have these bytes.
func (l *Log) archived(ctx context.Context, info joblog.Info, offset, end int64) ([]byte, error) {
	f, err := l.open(ctx, info)
	if err != nil {
		return nil, err
	}
	data, err := f.read(offset, end)
	if err != nil {
		return nil, fmt.Errorf("read archived log %s: %w", info.Stream, err)
	}
	return data, nil
}

// open returns the file of a stream from the cache or from its blob. It returns joblog.ErrNotFound if there is no blob: Drop or
// the lifecycle of the bucket has removed it.
func (l *Log) open(ctx context.Context, info joblog.Info) (*file, error) {
	key := blobKey(info)
	if f := l.cache.get(key); f != nil {
		return f, nil
	}
	b, err := l.blobs.Get(ctx, key)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, joblog.ErrNotFound
	}
	var f *file
	if err == nil {
		f, err = openFile(info, b)
	}
	if err != nil {
		return nil, fmt.Errorf("read archived log %s: %w", info.Stream, err)
	}
	l.cache.put(key, f)
	return f, nil
}

// Drop implements joblog.Log. It deletes the blobs before the log's streams. If a Drop is
// interrupted, the next Drop deletes the rest.
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
