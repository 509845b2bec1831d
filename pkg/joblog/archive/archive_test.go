package archive_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"slices"
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

// atOnce is a log that archives each stream as soon as the stream has ended. So all later
// reads use the archive.
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
	kept := map[string]joblog.Log{} // by folder, because the logs in memory are lost on close
	joblogtest.Run(t, joblogtest.Harness{Open: func(_ joblogtest.TB, dir string) (joblog.Log, func()) {
		if kept[dir] == nil {
			kept[dir] = atOnce{archive.New(joblogtest.Memory(), blobtest.Memory())}
		}
		return kept[dir], func() {}
	}})
}

// recorded returns a record with data. If end is not nil, the record also has end.
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

// unreadable is a record whose Rest fails.
type unreadable struct{ err error }

func (r unreadable) Rest(context.Context, joblog.Info) ([]byte, *joblog.Info, error) {
	return nil, nil, r.err
}

var one = joblog.Stream{Job: "job_1", Epoch: 1}

// ended returns an archive with one ended stream that is not archived yet.
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

// The archive has one object, which gunzip can open and which is smaller than the log. The
// log no longer has the bytes.
func TestArchivedLogIsOneGzipObject(t *testing.T) {
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
		t.Errorf("gunzip returns %d bytes, %v; want %d", len(got), err, len(want))
	}
	if len(b) > len(want)/20 {
		t.Errorf("the archive of %d bytes has %d bytes", len(want), len(b))
	}
	if _, err := l.Mover.Read(t.Context(), one, 0, 1); !errors.Is(err, joblog.ErrMoved) {
		t.Errorf("the log still has the bytes: %v", err)
	}
	got, info := all(t, l)
	if !bytes.Equal(got, want) || info.CRC32 != crc32.ChecksumIEEE(want) || !info.Ended || info.Truncated {
		t.Errorf("read %d bytes of %+v", len(got), info)
	}
}

// The archive completes a log from its record. A log counts as complete only if its writer
// reported its size.
func TestLostBytesComeFromTheRecord(t *testing.T) {
	whole := []byte("plan: 2 to add\napply complete\n")
	endOf := func(data []byte, truncated bool) *joblog.Info {
		return &joblog.Info{Stream: one, Size: int64(len(data)), CRC32: crc32.ChecksumIEEE(data), Truncated: truncated}
	}
	for name, test := range map[string]struct {
		stored    string
		truncated bool
		record    archive.Record
		want      string
		lacking   bool
	}{
		"record has the rest and the end: complete":      {"plan", true, recorded(t, whole, endOf(whole, false)), string(whole), false},
		"record has the rest but no end: truncated":      {"plan", true, recorded(t, whole, nil), string(whole), true},
		"record has a part of the rest: truncated":       {"plan", true, recorded(t, whole[:9], endOf(whole, false)), string(whole[:9]), true},
		"record is empty: truncated":                     {"plan", true, recorded(t, nil, nil), "plan", true},
		"end in the record is of other bytes: truncated": {"plan", true, recorded(t, whole, endOf([]byte(strings.ToUpper(string(whole))), false)), string(whole), true},
		"writer stopped at the limit: truncated":         {"plan", true, recorded(t, whole, endOf(whole, true)), string(whole), true},
		"log lacks only the end: complete":               {string(whole), true, recorded(t, whole, endOf(whole, false)), string(whole), false},
		"no record: truncated":                           {"plan", true, nil, "plan", true},
		"complete log: record is not used":               {"plan", false, recorded(t, whole, endOf(whole, false)), "plan", false},
		"only the record has bytes: complete":            {"", true, recorded(t, whole, endOf(whole, false)), string(whole), false},
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
			t.Errorf("%s: read %q of %+v, listed as %+v, %v; %+v", name, got, info, infos, err, k)
		}
	}
}

// A record that is unreadable now may be readable later, so Keep must not archive the log
// without the record's bytes.
func TestLogIsNotArchivedWithoutItsRecord(t *testing.T) {
	l, blobs := ended(t, []byte("plan"), true)
	refused := errors.New("throttled")
	if _, err := l.Keep(t.Context(), one.Job, unreadable{refused}); !errors.Is(err, refused) {
		t.Errorf("Keep without a readable record: %v", err)
	}
	if keys, _ := blobs.List(t.Context(), ""); len(keys) > 0 {
		t.Errorf("blobs %q", keys)
	}
	if got, _ := all(t, l); string(got) != "plan" {
		t.Errorf("read %q before the archiving", got)
	}
}

func TestOpenStreamIsNotArchived(t *testing.T) {
	l, blobs := ended(t, []byte("first"), true)
	two := joblog.Stream{Job: one.Job, Epoch: 2}
	if err := l.Open(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Keep(t.Context(), one.Job, nil); !errors.Is(err, archive.ErrOpen) {
		t.Errorf("Keep with an open stream: %v", err)
	}
	if keys, err := blobs.List(t.Context(), ""); err != nil || len(keys) != 1 {
		t.Errorf("blobs %q, %v; want only the one of the ended stream", keys, err)
	}
	if _, err := l.Append(t.Context(), two, 0, []byte("second")); err != nil {
		t.Errorf("the open stream refuses an append: %v", err)
	}
}

// broken is a blob store that returns changed bytes.
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

// A log drops its bytes only after the object was read back and was unchanged. If an object
// changes later, a read returns an error, never wrong bytes.
func TestChangedObjectIsRefused(t *testing.T) {
	want := []byte(strings.Repeat("aws_vpc.main: Creating...\n", 100_000))
	stored, blobs := ended(t, want, false)
	if _, err := archive.New(stored.Mover, broken{blobs, func(b []byte) []byte { return b[:len(b)-1] }}).Keep(t.Context(), one.Job, nil); err == nil {
		t.Error("Keep accepted a truncated object")
	}
	if _, err := stored.Mover.Read(t.Context(), one, 0, 1); err != nil {
		t.Errorf("the log has dropped its bytes: %v", err)
	}
	if _, err := stored.Keep(t.Context(), one.Job, nil); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"empty":                 func([]byte) []byte { return nil },
		"not gzip":              func([]byte) []byte { return []byte("hello, who is there?") },
		"gzip without an index": func([]byte) []byte { var b bytes.Buffer; z := gzip.NewWriter(&b); _ = z.Close(); return b.Bytes() },
		"truncated":             func(b []byte) []byte { return b[:len(b)-1] },
		"longer":                func(b []byte) []byte { return append(bytes.Clone(b), 0) },
		"one changed byte":      func(b []byte) []byte { b = bytes.Clone(b); b[len(b)-200] ^= 1; return b },
		"file of another log": func([]byte) []byte {
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

func TestLogWithoutItsObjectIsNotFound(t *testing.T) {
	l, blobs := ended(t, []byte("plan"), false)
	if _, err := l.Keep(t.Context(), one.Job, nil); err != nil {
		t.Fatal(err)
	}
	keys, err := blobs.List(t.Context(), "")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%q, %v", keys, err)
	}
	if err := blobs.Delete(t.Context(), keys[0]); err != nil { // as the lifecycle of the bucket does
		t.Fatal(err)
	}
	if _, err := l.Read(t.Context(), one, 0, 1); !errors.Is(err, joblog.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if c, err := l.Read(t.Context(), one, 4, 1); err != nil || !c.Ended || c.Info.Size != 4 {
		t.Errorf("read at the end: %+v, %v", c, err)
	}
}

// Every job name has a key, and no two jobs share one.
func TestEveryJobHasItsOwnKey(t *testing.T) {
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
		t.Errorf("%d jobs have the blobs %q, %v; want one each", len(names), keys, err)
	}
}

func TestMoveOfAnOpenStreamIsRefused(t *testing.T) {
	m := joblogtest.Memory()
	if err := m.Move(t.Context(), joblog.Info{Stream: one}); !errors.Is(err, joblog.ErrNotFound) {
		t.Errorf("move of a missing stream: %v", err)
	}
	if err := m.Open(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := m.Move(t.Context(), joblog.Info{Stream: one}); fairlead.KindOf(err) != fairlead.KindConflict {
		t.Errorf("move of an open stream: %v", err)
	}
}

func TestArchivedLogIsReadableAtAnyOffset(t *testing.T) {
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
			rt.Fatalf("got %d bytes, next %d, %v; want %d bytes", len(c.Data), c.Next, err, len(want))
		}
	})
}

// The live log is lost with its Region, and the archive has copies elsewhere. Its streams are found and read there without
// a record of them: the longer of two versions, whether a stream is complete, and none after Drop.
func TestArchivedLogIsFoundWithoutItsLog(t *testing.T) {
	ctx := t.Context()
	before, blobs := ended(t, []byte("plan"), true)
	other := joblog.Stream{Job: one.Job, Epoch: 12}
	if err := errors.Join(before.Open(ctx, other), func() error { _, err := before.Append(ctx, other, 0, []byte("apply")); return err }(), before.End(ctx, other, false)); err != nil {
		t.Fatal(err)
	}
	if _, err := before.Keep(ctx, one.Job, nil); err != nil {
		t.Fatal(err)
	}
	longer, more := ended(t, []byte("planned"), false)
	if _, err := longer.Keep(ctx, one.Job, nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range must(more.List(ctx, ""))(t) {
		if err := blobs.Put(ctx, key, must(more.Get(ctx, key))(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, stranger := range []string{"logs/job_1/x.gz", "logs/job_1/1-4.gz", "logs/job_1/01-4-00000000.gz"} {
		if err := blobs.Put(ctx, stranger, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}

	l := archive.New(joblogtest.Memory(), blobs)
	found := must(l.Find(ctx, one.Job))(t)
	want := []joblog.Info{
		{Stream: one, Size: 7, Ended: true, CRC32: crc32.ChecksumIEEE([]byte("planned"))},
		{Stream: other, Size: 5, Ended: true, CRC32: crc32.ChecksumIEEE([]byte("apply"))},
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %+v, want %+v", found, want)
	}
	if data, info := all(t, l); string(data) != "planned" || info != want[0] {
		t.Errorf("the log reads %q of %+v", data, info)
	}
	if c, err := l.Read(ctx, one, 100, 10); err != nil || len(c.Data) > 0 || c.Next != 100 || !c.Ended {
		t.Errorf("a read beyond the end: %+v, %v", c, err)
	}
	if _, err := l.Read(ctx, joblog.Stream{Job: one.Job, Epoch: 2}, 0, 10); !errors.Is(err, joblog.ErrNotFound) {
		t.Errorf("a stream that is not archived: %v, want ErrNotFound", err)
	}
	lost, few := ended(t, []byte("plan"), true)
	if _, err := lost.Keep(ctx, one.Job, nil); err != nil {
		t.Fatal(err)
	}
	if found := must(archive.New(joblogtest.Memory(), few).Find(ctx, one.Job))(t); len(found) != 1 || !found[0].Truncated {
		t.Errorf("a truncated log is found as %+v", found)
	}
	if err := l.Drop(ctx, one.Job); err != nil {
		t.Fatal(err)
	}
	if found := must(l.Find(ctx, one.Job))(t); len(found) > 0 {
		t.Errorf("after Drop %+v are found", found)
	}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
