// Package joblog keeps what the tools of a job wrote, byte for byte: one
// stream for each attempt (epoch) of a job, appended at a byte offset and read
// from one.
//
// Appends are idempotent: repeating bytes that are already stored changes
// nothing, a gap is refused with the offset that is wanted, and different
// bytes at a stored offset are refused for good. Opening an epoch fences all
// earlier ones. Every driver passes joblogtest.
package joblog

import (
	"context"
	"errors"
	"fmt"
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
	Ended     bool   // End was called: no byte will follow
	Truncated bool   // the writer stopped at MaxStream, or lost its tail; the first End says it
	CRC32     uint32 // IEEE checksum of the Size bytes
}

// Chunk is a piece of a stream. Next is the offset after Data; when Data is
// empty and Ended is true, the reader has everything.
type Chunk struct {
	Data  []byte
	Next  int64
	Info  Info
	Ended bool // Data reaches the end of a stream that has ended
}

// The limits.
const (
	MaxAppend = 1 << 20  // bytes in one append; CloudWatch Logs' batch limit
	MaxRead   = 1 << 20  // bytes in one read
	MaxStream = 64 << 20 // bytes in one stream; a writer truncates with a marker before it
)

// Errors of a log.
var (
	// ErrNotFound says that the stream was never opened.
	ErrNotFound = errors.New("no such log")
	// ErrFenced says that a later epoch has been opened, or that this one has
	// ended: the writer stops.
	ErrFenced = errors.New("a later attempt writes this log now")
	// ErrDiverged says that other bytes are stored at the offset.
	ErrDiverged = errors.New("other bytes are stored at this offset")
	// ErrFull says that the append would pass MaxStream.
	ErrFull = errors.New("the log is full")
	// ErrMoved says that a byte would be needed which is kept elsewhere (see
	// Mover). A chunk that comes with it has its Info.
	ErrMoved = errors.New("the bytes of this log are kept elsewhere")
)

// OffsetError says that an append would leave a gap: the writer goes on at Want.
type OffsetError struct{ Want int64 }

func (e *OffsetError) Error() string { return fmt.Sprintf("the log continues at offset %d", e.Want) }

// Log stores streams. Safe for concurrent use. Arguments outside the limits
// are refused with a *fairlead.Error (see CheckAppend and its siblings). Every
// method but Follow returns the context's error once its context has ended.
type Log interface {
	// Open makes the stream and fences every earlier epoch of its job.
	// Opening it again is no error; opening an epoch that is fenced is ErrFenced.
	Open(ctx context.Context, s Stream) error

	// Append stores data at offset and returns the offset after it. The data
	// survives the end of this process; what the power takes, End finds missing.
	// Overlap with stored bytes must match them, else ErrDiverged; a gap is an
	// *OffsetError; a fenced or ended stream is ErrFenced, except that bytes
	// which are already stored whole are acknowledged again. An append is stored
	// whole or not at all. It keeps no reference to data.
	Append(ctx context.Context, s Stream, offset int64, data []byte) (next int64, err error)

	// End says that no byte will follow, and makes all of them durable. A writer
	// keeps what it wrote until then. Ending twice is no error, and the
	// first truncated stays. A fenced stream can be ended, which is how the
	// followers of a lost attempt learn that it is over: a later epoch alone
	// ends nothing.
	End(ctx context.Context, s Stream, truncated bool) error

	// Read returns up to max bytes from offset, at once, perhaps none. It never
	// returns more than MaxRead. At or beyond the end it returns an empty chunk
	// whose Next is offset.
	Read(ctx context.Context, s Stream, offset int64, max int) (Chunk, error)

	// Follow is Read that waits, until ctx ends, for a byte or the end of the
	// stream. It wakes as soon as either comes within the same process. When
	// ctx ends first it returns an empty chunk and no error.
	Follow(ctx context.Context, s Stream, offset int64, max int) (Chunk, error)

	// Streams lists a job's streams in the order of their epochs; none is no
	// error.
	Streams(ctx context.Context, job string) ([]Info, error)

	// Drop removes every stream of the job, its fence too. Followers get
	// ErrNotFound. A job without streams is no error.
	Drop(ctx context.Context, job string) error
}

// Mover is a Log that gives bytes away when somebody else keeps them.
type Mover interface {
	Log

	// Move says that somebody else keeps the bytes of an ended stream, as info
	// describes them: all that are stored, perhaps more that were found after
	// the end. The log drops its own and keeps info, which Streams lists and by
	// which Truncated may have been cured. From then on Read, Follow and Append
	// return ErrMoved where they need a byte. A stream that has moved stays
	// as it was moved first, which is no error; for one that has not ended, or
	// that has more bytes than info, it is KindConflict.
	Move(ctx context.Context, info Info) error
}
