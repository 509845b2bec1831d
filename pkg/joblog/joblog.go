// Package joblog keeps the output of a job's tools, byte for byte: one stream for each attempt (epoch) of a job.
// Writers append at a byte offset; readers read from a byte offset.
//
// Appends are idempotent: repeating stored bytes changes nothing, a gap is refused with the expected offset, and
// different bytes at a stored offset are refused permanently. Opening an epoch fences all earlier ones. Every driver
// passes joblogtest.
package joblog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Stream names the log of one attempt of a job.
type Stream struct {
	Job   string
	Epoch int64 // at least 1
}

func (s Stream) String() string { return fmt.Sprintf("%s@%d", s.Job, s.Epoch) }

// Info describes a stream.
type Info struct {
	Stream    Stream
	Size      int64  // bytes stored
	Ended     bool   // End was called: no more bytes follow
	Truncated bool   // the writer stopped at MaxStream or lost the last bytes, or the stream was cut; the first End sets Truncated
	Cut       bool   // the stream accepts no new bytes, because its runner has used up its Budget
	CRC32     uint32 // IEEE checksum of the Size bytes
}

// Chunk is a piece of a stream. Next is the offset after Data. If Data is empty and Ended is true, the reader has the
// whole stream.
type Chunk struct {
	Data  []byte
	Next  int64
	Info  Info
	Ended bool // the stream has ended and Data reaches its end
}

// The limits.
const (
	MaxAppend = 1 << 20  // bytes in one append; CloudWatch Logs' batch limit
	MaxRead   = 1 << 20  // bytes in one read
	MaxStream = 64 << 20 // bytes in one stream; a writer ends its output with a marker before this limit
)

// Errors of a log.
var (
	// ErrNotFound reports that the stream was never opened.
	ErrNotFound = errors.New("no such log")
	// ErrFenced reports that a later epoch was opened, or that the stream has ended. The writer stops.
	ErrFenced = errors.New("a later attempt writes this log now")
	// ErrDiverged reports that other bytes are stored at the offset.
	ErrDiverged = errors.New("other bytes are stored at this offset")
	// ErrFull reports that the append would exceed MaxStream.
	ErrFull = errors.New("the log is full")
	// ErrCut reports that the stream was cut: its runner has used up its Budget. The writer goes on without the log.
	ErrCut = errors.New("the runner has used up its budget of log bytes")
	// ErrMoved reports that the operation needs a byte that is stored elsewhere (see Mover). A chunk that is returned
	// with ErrMoved holds the stream's Info.
	ErrMoved = errors.New("the bytes of this log are kept elsewhere")
	// ErrExpired reports that the stream has ended and its log no longer has the bytes, which no archive has either. The
	// archive can still take them from another copy (see package archive).
	ErrExpired = errors.New("the bytes of this log were removed before they were archived")
)

// OffsetError reports that an append would leave a gap. The writer continues at Want.
type OffsetError struct{ Want int64 }

func (e *OffsetError) Error() string { return fmt.Sprintf("the log continues at offset %d", e.Want) }

// Log stores streams. Safe for concurrent use. It refuses arguments outside the limits with a *fairlead.Error (see
// CheckAppend and its siblings). Every method except Follow returns the context's error once its context has ended.
type Log interface {
	// Open creates the stream and fences every earlier epoch of its job. Opening the stream again is no error. For a
	// fenced epoch, Open returns ErrFenced.
	Open(ctx context.Context, s Stream) error

	// Append stores data at offset and returns the offset after it. The data survives the end of this process; End
	// detects data lost in a power cut. If bytes overlap stored bytes and differ from them, Append returns ErrDiverged.
	// For a gap it returns an *OffsetError. For a fenced or ended stream it returns ErrFenced, for a cut one ErrCut, but if all bytes of
	// data are already stored, it returns no error. An append is stored whole or not at all. Append keeps no reference to
	// data.
	Append(ctx context.Context, s Stream, offset int64, data []byte) (next int64, err error)

	// End marks that no more bytes follow, and makes all stored bytes durable. A writer keeps its output until End
	// returns. Ending twice is no error, and the first value of truncated stays. A cut stream always ends truncated. A fenced stream can be ended: only
	// End, not a later epoch, shows the followers of a lost attempt that its log is complete.
	End(ctx context.Context, s Stream, truncated bool) error

	// Read returns up to max bytes from offset, at most MaxRead. Read does not wait, and may return no bytes. At or
	// beyond the end it returns an empty chunk whose Next is offset.
	Read(ctx context.Context, s Stream, offset int64, max int) (Chunk, error)

	// Follow is Read that waits, until ctx ends, for a byte or the end of the stream. It wakes at once if the writer is
	// in the same process. If ctx ends first, it returns an empty chunk and no error.
	Follow(ctx context.Context, s Stream, offset int64, max int) (Chunk, error)

	// Followed reports whether a reader waits for the next byte of the stream, in this process or in another one, or did so
	// within the last minute. A writer sends its bytes in smaller pieces while it is followed. An ended stream is not
	// followed. A driver may notice a new follower up to a second late, and is never required to be exact. For an open
	// stream that was cut, Followed returns ErrCut, so that a writer learns of it without another request.
	Followed(ctx context.Context, s Stream) (bool, error)

	// Cut closes the open stream to new bytes: from now on Append returns ErrCut for them. Its reason is the budget of the
	// stream's runner. Cutting twice, or after the end, is no error.
	Cut(ctx context.Context, s Stream) error

	// Spend takes n bytes from the runner's budget b at the time now, and reports true. If nothing is left, it takes nothing
	// and reports false. The last bytes may exceed the rest. Concurrent calls count each. With n = 0, Spend only reports
	// whether something is left. Spend does not write to a stream; see Budgeted.
	Spend(ctx context.Context, runner string, n int64, b Budget, now time.Time) (bool, error)

	// Streams lists a job's streams in the order of their epochs. A job without streams is no error.
	Streams(ctx context.Context, job string) ([]Info, error)

	// Drop removes every stream of the job, and the fence of the job. Followers get ErrNotFound. A job without streams
	// is no error.
	Drop(ctx context.Context, job string) error
}

// Finder is a Log that can also list the streams that its archive has and its live part lacks. The live part stays in one
// Region, and the archive has copies in another: after the loss of the first Region it is all that is left.
type Finder interface {
	// Find lists the archived streams of a job in the order of their epochs, and does not ask the live part. Read reads
	// them. A job without archived streams is no error. Find is slower than Streams, and costs more: use it for a job that
	// has ended and has no streams.
	Find(ctx context.Context, job string) ([]Info, error)
}

// Mover is a Log that can drop the bytes of a stream after another store, such as the archive, has taken them.
type Mover interface {
	Log

	// Move records that another store keeps the bytes of an ended stream, as info describes them: all stored bytes, and
	// perhaps more that were found after the end. The log may drop its own bytes, then or later. It keeps info, which
	// Streams lists; info may clear Truncated. From then on Read, Follow and Append return ErrMoved if they need a byte. Moving a moved
	// stream again changes nothing and is no error. If the stream has not ended, or has more bytes than info, Move
	// returns an error of KindConflict.
	Move(ctx context.Context, info Info) error
}
