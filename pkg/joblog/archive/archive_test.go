package archive_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/archive"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
)

// atOnce archives a stream as soon as it has ended, so that whatever follows
// is read from the archive.
type atOnce struct{ *archive.Log }

func (l atOnce) End(ctx context.Context, s joblog.Stream, truncated bool) error {
	if err := l.Log.End(ctx, s, truncated); err != nil {
		return err
	}
	if _, err := l.Keep(ctx, s.Job, nil); err != nil && !errors.Is(err, archive.ErrOpen) {
		return err
	}
	return nil
}

func TestArchivedLogConforms(t *testing.T) {
	kept := map[string]joblog.Log{} // by folder: memory forgets nothing while it is here
	joblogtest.Run(t, joblogtest.Harness{Open: func(_ joblogtest.TB, dir string) (joblog.Log, func()) {
		if kept[dir] == nil {
			kept[dir] = atOnce{archive.New(joblogtest.Memory(), blobtest.Memory())}
		}
		return kept[dir], func() {}
	}})
}

// recorded is another copy of a log, to which data was put, and end if it is not nil.
func recorded(t testing.TB, data []byte, end *joblog.Info) archive.Record {
	t.Helper()
	r := joblogtest.MemoryTransport()
	if err := r.Put(t.Context(), one, 0, data); err != nil {
		t.Fatal(err)
	}
	if end != nil {
		if err := r.End(t.Context(), *end); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// unreadable is a record that cannot be read.
type unreadable struct{ err error }

func (r unreadable) Rest(context.Context, joblog.Info) ([]byte, *joblog.Info, error) {
	return nil, nil, r.err
}

var one = joblog.Stream{Job: "job_1", Epoch: 1}

// ended is an archive with a stream that has ended, which can be read as it
// was before it is archived.
func ended(t testing.TB, data []byte, truncated bool) (*archive.Log, blob.Store) {
	t.Helper()
	blobs := blobtest.Memory()
	l := archive.New(joblogtest.Memory(), blobs)
	if err := l.Open(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(data); at += joblog.MaxAppend {
		if _, err := l.Append(t.Context(), one, int64(at), data[at:min(at+joblog.MaxAppend, len(data))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.End(t.Context(), one, truncated); err != nil {
		t.Fatal(err)
	}
	return l, blobs
}

func all(t testing.TB, l joblog.Log) ([]byte, joblog.Info) {
	t.Helper()
	var data []byte
	for {
		c, err := l.Read(t.Context(), one, int64(len(data)), joblog.MaxRead)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, c.Data...)
		if c.Ended || len(c.Data) == 0 {
			return data, c.Info
		}
	}
}

// One object, smaller than the log, that gunzip opens; and the log itself has
// no byte any more.
func TestLogBecomesOneObject(t *testing.T) {
	want := []byte(strings.Repeat("aws_vpc.main: Still creating... [10s elapsed]\n", 100_000))
	l, blobs := ended(t, want, false)
	for range 2 {
		if _, err := l.Keep(t.Context(), one.Job, nil); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := blobs.List(t.Context(), "")
	if err != nil || len(keys) != 1 || !strings.HasPrefix(keys[0], "logs/job_1/1-") || !strings.HasSuffix(keys[0], ".gz") {
		t.Fatalf("blobs %q, %v", keys, err)
	}
	b, err := blobs.Get(t.Context(), keys[0])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
		t.Errorf("gunzip finds %d bytes, %v; want %d", len(got), err, len(want))
	}
	if len(b) > len(want)/20 {
		t.Errorf("%d bytes are archived as %d", len(want), len(b))
	}
	if _, err := l.Mover.Read(t.Context(), one, 0, 1); !errors.Is(err, joblog.ErrMoved) {
		t.Errorf("the log still reads it: %v", err)
	}
	got, info := all(t, l)
	if !bytes.Equal(got, want) || info.CRC32 != crc32.ChecksumIEEE(want) || !info.Ended || info.Truncated {
		t.Errorf("read %d bytes of %+v", len(got), info)
	}
}

// What the writer lost is found in the record; nobody is told that a log is
// whole unless its writer said how long it is.
func TestWhatWasLostIsLookedForInTheRecord(t *testing.T) {
	whole := []byte("plan: 2 to add\napply complete\n")
	said := func(data []byte, truncated bool) *joblog.Info {
		return &joblog.Info{Stream: one, Size: int64(len(data)), CRC32: crc32.ChecksumIEEE(data), Truncated: truncated}
	}
	for name, test := range map[string]struct {
		stored    string
		truncated bool
		record    archive.Record
		want      string
		lacking   bool
	}{
		"the record has the rest and its end: the log is whole":                {"plan", true, recorded(t, whole, said(whole, false)), string(whole), false},
		"the record has the rest and no end: nobody knows":                     {"plan", true, recorded(t, whole, nil), string(whole), true},
		"the record has some of the rest: still truncated":                     {"plan", true, recorded(t, whole[:9], said(whole, false)), string(whole[:9]), true},
		"the record has nothing: still truncated":                              {"plan", true, recorded(t, nil, nil), "plan", true},
		"the record's end is of other bytes: still truncated":                  {"plan", true, recorded(t, whole, said([]byte(strings.ToUpper(string(whole))), false)), string(whole), true},
		"the writer itself had stopped at the limit: truncated":                {"plan", true, recorded(t, whole, said(whole, true)), string(whole), true},
		"only the end was lost: the log is whole":                              {string(whole), true, recorded(t, whole, said(whole, false)), string(whole), false},
		"there is no record: still truncated":                                  {"plan", true, nil, "plan", true},
		"a log that was whole is not completed by whoever writes to its group": {"plan", false, recorded(t, whole, said(whole, false)), "plan", false},
		"nothing but the record has any":                                       {"", true, recorded(t, whole, said(whole, false)), string(whole), false},
	} {
		l, _ := ended(t, []byte(test.stored), test.truncated)
		k, err := l.Keep(t.Context(), one.Job, test.record)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, info := all(t, l)
		infos, err := l.Streams(t.Context(), one.Job)
		if string(got) != test.want || info.Truncated != test.lacking || err != nil || len(infos) != 1 || infos[0] != info ||
			info.CRC32 != crc32.ChecksumIEEE(got) || k.Found != int64(len(test.want)-len(test.stored)) {
			t.Errorf("%s: %q of %+v, listed as %+v, %v; %+v", name, got, info, infos, err, k)
		}
	}
}

// A record that cannot be read now may be read later: nothing is archived
// without it.
func TestArchivingWaitsForTheRecord(t *testing.T) {
	l, blobs := ended(t, []byte("plan"), true)
	refused := errors.New("throttled")
	if _, err := l.Keep(t.Context(), one.Job, unreadable{refused}); !errors.Is(err, refused) {
		t.Errorf("archived without its record: %v", err)
	}
	if keys, _ := blobs.List(t.Context(), ""); len(keys) > 0 {
		t.Errorf("blobs %q", keys)
	}
	if got, _ := all(t, l); string(got) != "plan" {
		t.Errorf("meanwhile it reads %q", got)
	}
}

func TestStreamThatIsStillWrittenStays(t *testing.T) {
	l, blobs := ended(t, []byte("first"), true)
	two := joblog.Stream{Job: one.Job, Epoch: 2}
	if err := l.Open(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Keep(t.Context(), one.Job, nil); !errors.Is(err, archive.ErrOpen) {
		t.Errorf("with an open stream: %v", err)
	}
	if keys, err := blobs.List(t.Context(), ""); err != nil || len(keys) != 1 {
		t.Errorf("blobs %q, %v; want that of the stream which has ended", keys, err)
	}
	if _, err := l.Append(t.Context(), two, 0, []byte("second")); err != nil {
		t.Errorf("the open stream takes no more: %v", err)
	}
}

// broken is a blob store that gives back something else.
type broken struct {
	blob.Store
	change func([]byte) []byte
}

func (s broken) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := s.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.change(b), nil
}

// A log drops its bytes only for an object that was read back whole; and one
// that changes later is an error and never a wrong log.
func TestChangedObjectIsNoLog(t *testing.T) {
	want := []byte(strings.Repeat("aws_vpc.main: Creating...\n", 100_000))
	stored, blobs := ended(t, want, false)
	if _, err := archive.New(stored.Mover, broken{blobs, func(b []byte) []byte { return b[:len(b)-1] }}).Keep(t.Context(), one.Job, nil); err == nil {
		t.Error("archived as an object that is cut off")
	}
	if _, err := stored.Mover.Read(t.Context(), one, 0, 1); err != nil {
		t.Errorf("and the log has dropped its bytes: %v", err)
	}
	if _, err := stored.Keep(t.Context(), one.Job, nil); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"nothing":             func([]byte) []byte { return nil },
		"no gzip":             func([]byte) []byte { return []byte("hello, who is there?") },
		"a gzip of others":    func([]byte) []byte { var b bytes.Buffer; z := gzip.NewWriter(&b); _ = z.Close(); return b.Bytes() },
		"cut off":             func(b []byte) []byte { return b[:len(b)-1] },
		"longer":              func(b []byte) []byte { return append(bytes.Clone(b), 0) },
		"a byte in the bytes": func(b []byte) []byte { b = bytes.Clone(b); b[len(b)-200] ^= 1; return b },
		"another log's": func([]byte) []byte {
			_, other := ended(t, []byte("other"), false)
			l := archive.New(joblogtest.Memory(), other)
			_ = l.Open(t.Context(), one)
			_, _ = l.Append(t.Context(), one, 0, []byte("other"))
			_ = l.End(t.Context(), one, false)
			_, _ = l.Keep(t.Context(), one.Job, nil)
			keys, _ := other.List(t.Context(), "")
			b, _ := other.Get(t.Context(), keys[0])
			return b
		},
	} {
		l := archive.New(stored.Mover, broken{blobs, change})
		if c, err := l.Read(t.Context(), one, int64(len(want)-10), 10); err == nil {
			t.Errorf("%s: read %q", name, c.Data)
		}
	}
}

func TestObjectThatIsGoneIsALogThatIsGone(t *testing.T) {
	l, blobs := ended(t, []byte("plan"), false)
	if _, err := l.Keep(t.Context(), one.Job, nil); err != nil {
		t.Fatal(err)
	}
	keys, err := blobs.List(t.Context(), "")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%q, %v", keys, err)
	}
	if err := blobs.Delete(t.Context(), keys[0]); err != nil { // its time was up
		t.Fatal(err)
	}
	if _, err := l.Read(t.Context(), one, 0, 1); !errors.Is(err, joblog.ErrNotFound) {
		t.Errorf("%v, want no such log", err)
	}
	if c, err := l.Read(t.Context(), one, 4, 1); err != nil || !c.Ended || c.Info.Size != 4 {
		t.Errorf("what is known of it: %+v, %v", c, err)
	}
}

// A job of any name has a key, and two never share one.
func TestAnyJobHasAKey(t *testing.T) {
	names := []string{".", "..", "...", "a", strings.Repeat("j", 100), strings.Repeat("j", 128), strings.Repeat("j", 127)}
	blobs := blobtest.Memory()
	l := archive.New(joblogtest.Memory(), blobs)
	for _, job := range names {
		s := joblog.Stream{Job: job, Epoch: 1}
		if err := l.Open(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(t.Context(), s, 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := l.End(t.Context(), s, false); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Keep(t.Context(), job, nil); err != nil {
			t.Errorf("%q: %v", job, err)
		}
	}
	if keys, err := blobs.List(t.Context(), "logs/"); err != nil || len(keys) != len(names) {
		t.Errorf("%d jobs have the blobs %q, %v", len(names), keys, err)
	}
}

func TestMoverRefusesWhatHasNotEnded(t *testing.T) {
	m := joblogtest.Memory()
	if err := m.Move(t.Context(), joblog.Info{Stream: one}); !errors.Is(err, joblog.ErrNotFound) {
		t.Errorf("a stream that is not there: %v", err)
	}
	if err := m.Open(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := m.Move(t.Context(), joblog.Info{Stream: one}); fairlead.KindOf(err) != fairlead.KindConflict {
		t.Errorf("a stream that is written: %v", err)
	}
}

func TestAnyLogComesBackFromAnyCursor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(0, 3<<20+5).Draw(rt, "size")
		piece := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(rt, "piece")
		data := bytes.Repeat(piece, size/len(piece)+1)[:size]
		l, _ := ended(t, data, false)
		if _, err := l.Keep(t.Context(), one.Job, nil); err != nil {
			rt.Fatal(err)
		}
		at := rapid.IntRange(0, size).Draw(rt, "at")
		limit := rapid.IntRange(1, 2<<20).Draw(rt, "limit")
		c, err := l.Read(t.Context(), one, int64(at), limit)
		if want := data[at:min(at+min(limit, joblog.MaxRead), size)]; err != nil || !bytes.Equal(c.Data, want) || c.Next != int64(at+len(want)) {
			rt.Fatalf("%d bytes to %d, %v; want %d", len(c.Data), c.Next, err, len(want))
		}
	})
}
