package joblogtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
)

// Transport transports streams through a record that is not a joblog.Log. A step writes to
// the record, and bytes that the log does not have are fetched from the record. Safe for
// concurrent use, but a caller must put the pieces of one stream one after the other.
type Transport interface {
	// Put stores data at offset of the stream. A caller may repeat a Put, and may put the
	// pieces in any order.
	Put(ctx context.Context, s joblog.Stream, offset int64, data []byte) error
	// End stores the size and checksum of a stream after all its bytes were put. A caller
	// may repeat End.
	End(ctx context.Context, info joblog.Info) error
	// Rest has the contract of archive.Record's method Rest.
	Rest(ctx context.Context, have joblog.Info) (rest []byte, end *joblog.Info, err error)
}

// RunTransport runs the suite for Transport. The function open returns a Transport with an
// empty record.
func RunTransport(t *testing.T, open func(t *testing.T) Transport) {
	for _, tt := range []struct {
		name string
		test func(transported)
	}{
		{"repeated puts are returned once", repeatedPuts},
		{"any bytes are returned unchanged", anyBytes},
		{"a piece larger than a mebibyte is returned unchanged", largePiece},
		{"the rest begins at the end of the log", restBegins},
		{"the rest ends before a gap", restEndsBeforeGap},
		{"the end of a stream is returned", endIsKept},
		{"streams are separate", streamsAreApart},
		{"streams can be put concurrently", streamsSideBySide},
		{"an invalid stream is refused", invalidStream},
		{"call with an ended context does nothing", endedTransport},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(transported{t, open(t), joblog.Stream{Job: "job_1", Epoch: 2}})
		})
	}
}

// transported is the environment of one test of a transport.
type transported struct {
	*testing.T
	Transport
	s joblog.Stream
}

func (x transported) put(s joblog.Stream, offset int64, data string) {
	x.Helper()
	if err := x.Put(x.Context(), s, offset, []byte(data)); err != nil {
		x.Fatal(err)
	}
}

// wants checks the results of Rest for a stream of which the log has the first size bytes.
func (x transported) wants(s joblog.Stream, size int64, rest string, end *joblog.Info) {
	x.Helper()
	got, gotEnd, err := x.Rest(x.Context(), joblog.Info{Stream: s, Size: size})
	if err != nil {
		x.Fatal(err)
	}
	if string(got) != rest {
		x.Errorf("the rest after %d bytes of %s has %d bytes: %.80q, want %d: %.80q", size, s, len(got), got, len(rest), rest)
	}
	if (gotEnd == nil) != (end == nil) || end != nil && *gotEnd != *end {
		x.Errorf("the end of %s is %+v, want %+v", s, gotEnd, end)
	}
}

func repeatedPuts(x transported) {
	x.wants(x.s, 0, "", nil)
	for range 2 { // the second put is a retry after a lost response
		x.put(x.s, 0, "aws_vpc.main: ")
		x.put(x.s, 14, "Creating…\n")
	}
	x.wants(x.s, 0, "aws_vpc.main: Creating…\n", nil)
	x.put(x.s, 10, "in: Creating…\nmore")
	x.wants(x.s, 0, "aws_vpc.main: Creating…\nmore", nil)
}

func anyBytes(x transported) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	at, want := int64(0), ""
	for _, data := range []string{" \n ", "\x1b[31mred\x1b[0m\r\n", "\x00", "\xff\xfe", "0 t x", string(all)} {
		x.put(x.s, at, data)
		at, want = at+int64(len(data)), want+data
	}
	x.wants(x.s, 0, want, nil)
}

func largePiece(x transported) {
	want := strings.Repeat("aws_vpc.main: Still creating… [10s elapsed]\n", (joblog.MaxAppend+joblog.MaxAppend/4)/45) + "\x00\xff"
	x.put(x.s, 0, want)
	x.wants(x.s, 0, want, nil)
}

func restBegins(x transported) {
	x.put(x.s, 0, "abc")
	x.put(x.s, 3, "def")
	for at, want := range []string{"abcdef", "bcdef", "cdef", "def", "ef", "f", ""} {
		x.wants(x.s, int64(at), want, nil)
	}
	x.wants(x.s, 100, "", nil) // the log has more than the record
}

func restEndsBeforeGap(x transported) {
	x.put(x.s, 6, "ghi")
	x.wants(x.s, 0, "", nil)
	x.put(x.s, 0, "abc")
	x.wants(x.s, 0, "abc", nil)
	x.wants(x.s, 4, "", nil)
	x.wants(x.s, 7, "hi", nil)
	x.put(x.s, 3, "def")
	x.wants(x.s, 0, "abcdefghi", nil)
}

func endIsKept(x transported) {
	for epoch, truncated := range []bool{false, true} {
		s := joblog.Stream{Job: "job_1", Epoch: int64(epoch + 1)}
		info := joblog.Info{Stream: s, Size: 6, CRC32: crc32.ChecksumIEEE([]byte("abcdef")), Ended: true, Truncated: truncated}
		x.put(s, 0, "abc")
		for range 2 {
			if err := x.End(x.Context(), info); err != nil {
				x.Fatal(err)
			}
		}
		x.wants(s, 0, "abc", &info) // the size in the end shows a reader that "abc" is not the whole stream
		x.put(s, 3, "def")
		x.wants(s, 0, "abcdef", &info)
		x.wants(s, 6, "", &info)
	}
	nothing := joblog.Info{Stream: joblog.Stream{Job: "job_1", Epoch: 3}, Ended: true}
	if err := x.End(x.Context(), nothing); err != nil {
		x.Fatal(err)
	}
	x.wants(nothing.Stream, 0, "", &nothing)
}

func streamsAreApart(x transported) {
	x.put(x.s, 0, "two")
	x.put(joblog.Stream{Job: "job_1", Epoch: 22}, 0, "twenty-two")
	x.put(joblog.Stream{Job: "job_2", Epoch: 2}, 0, "another job")
	x.wants(x.s, 0, "two", nil)
	x.wants(joblog.Stream{Job: "job_1", Epoch: 1}, 0, "", nil)
}

func streamsSideBySide(x transported) {
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			s := joblog.Stream{Job: "job_1", Epoch: int64(i + 1)}
			for at, letter := range "abc" {
				errs[i] = errors.Join(errs[i], x.Put(x.Context(), s, int64(at), []byte(string(letter))))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		x.Fatal(err)
	}
	for i := range errs {
		x.wants(joblog.Stream{Job: "job_1", Epoch: int64(i + 1)}, 0, "abc", nil)
	}
}

func invalidStream(x transported) {
	for _, s := range []joblog.Stream{{}, {Job: "job_1"}, {Job: "a/b", Epoch: 1}, {Job: "job_1", Epoch: -1}} {
		put, end := x.Put(x.Context(), s, 0, []byte("x")), x.End(x.Context(), joblog.Info{Stream: s})
		_, _, rest := x.Rest(x.Context(), joblog.Info{Stream: s})
		for _, err := range []error{put, end, rest} {
			if fairlead.KindOf(err) != fairlead.KindInvalid {
				x.Errorf("%+v: %v, want kind invalid", s, err)
			}
		}
	}
}

func endedTransport(x transported) {
	ctx, cancel := context.WithCancel(x.Context())
	cancel()
	put, end := x.Put(ctx, x.s, 0, []byte("x")), x.End(ctx, joblog.Info{Stream: x.s, Ended: true})
	_, _, rest := x.Rest(ctx, joblog.Info{Stream: x.s})
	for _, err := range []error{put, end, rest} {
		if !errors.Is(err, context.Canceled) {
			x.Errorf("with an ended context: %v", err)
		}
	}
	x.wants(x.s, 0, "", nil)
}

// MemoryTransport returns a Transport with a record in memory. It passes the suite.
func MemoryTransport() Transport {
	return &memoryTransport{pieces: map[joblog.Stream][]piece{}, ends: map[joblog.Stream]joblog.Info{}}
}

type memoryTransport struct {
	mu     sync.Mutex
	pieces map[joblog.Stream][]piece
	ends   map[joblog.Stream]joblog.Info
}

type piece struct {
	offset int64
	data   []byte
}

func (m *memoryTransport) Put(ctx context.Context, s joblog.Stream, offset int64, data []byte) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pieces[s] = append(m.pieces[s], piece{offset, bytes.Clone(data)})
	return nil
}

func (m *memoryTransport) End(ctx context.Context, info joblog.Info) error {
	if err := cmp.Or(joblog.CheckStream(info.Stream), ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[info.Stream] = info
	return nil
}

func (m *memoryTransport) Rest(ctx context.Context, have joblog.Info) (rest []byte, end *joblog.Info, err error) {
	if err := cmp.Or(joblog.CheckStream(have.Stream), ctx.Err()); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	pieces := slices.Clone(m.pieces[have.Stream])
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.offset, b.offset) })
	at := have.Size
	for _, p := range pieces {
		if p.offset <= at && p.offset+int64(len(p.data)) > at {
			rest = append(rest, p.data[at-p.offset:]...)
			at = p.offset + int64(len(p.data))
		}
	}
	if info, ended := m.ends[have.Stream]; ended {
		end = &info
	}
	return rest, end, nil
}
