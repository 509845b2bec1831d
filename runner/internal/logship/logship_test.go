package logship_test

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/runner/internal/logship"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// remote simulates the control plane's log. before and after can make it fail.
type remote struct {
	mu     sync.Mutex
	log    []byte
	calls  int
	before func(r *remote, offset int64, data []byte) error // called with mu held
	after  func(r *remote) error
	got    chan struct{}
}

func newRemote() *remote { return &remote{got: make(chan struct{}, 1000)} }

func (r *remote) append(ctx context.Context, offset int64, data []byte) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if r.before != nil {
		if err := r.before(r, offset, data); err != nil {
			return 0, err
		}
	}
	if offset > int64(len(r.log)) {
		return 0, &logship.OffsetError{Want: int64(len(r.log))}
	}
	overlap := min(int64(len(r.log))-offset, int64(len(data)))
	if !bytes.Equal(r.log[offset:offset+overlap], data[:overlap]) {
		return 0, errors.New("diverged")
	}
	r.log = append(r.log, data[overlap:]...)
	r.got <- struct{}{}
	if r.after != nil {
		if err := r.after(r); err != nil {
			return 0, err
		}
	}
	return offset + int64(len(data)), nil
}

func open(t *testing.T, r *remote, o logship.Options) *logship.Shipper {
	t.Helper()
	s, err := logship.New(t.Context(), filepath.Join(t.TempDir(), "log"), r.append, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, s *logship.Shipper, text string) {
	t.Helper()
	if n, err := s.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("Write = %d, %v, want %d", n, err, len(text))
	}
}

func TestEveryByteArrives(t *testing.T) {
	r := newRemote()
	s := open(t, r, logship.Options{Every: time.Millisecond})
	var want strings.Builder
	for range 1000 {
		line := strings.Repeat("x", 100) + "\n"
		want.WriteString(line)
		write(t, s, line)
	}
	end, _, err := s.Close(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.log) != want.String() {
		t.Errorf("the control plane has %d bytes, want the %d that were written", len(r.log), want.Len())
	}
	if end.Size != int64(want.Len()) || end.CRC32 != crc32.ChecksumIEEE([]byte(want.String())) || end.Truncated {
		t.Errorf("Close = %+v, want %d bytes with their checksum", end, want.Len())
	}
}

func TestLineIsSentBeforeClose(t *testing.T) {
	r := newRemote()
	s := open(t, r, logship.Options{})
	write(t, s, "hello\n")
	<-r.got // the line arrives before Close
	if _, _, err := s.Close(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// A log that grows fast costs less in larger pieces. The few bytes of a slow log do not wait for them, and a follower's interval
// applies to both.
func TestFastLogIsSentInLargerPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		s := open(t, r, logship.Options{Every: 2 * time.Second, Bulk: 5 * time.Second})
		// sent writes n bytes after a piece was sent, and returns when they are sent after that.
		last := time.Now()
		sent := func(n int) time.Duration {
			write(t, s, strings.Repeat("x", n))
			<-r.got
			took := time.Since(last)
			last = time.Now()
			return took
		}
		sent(1) // the first byte after a pause hardly waits
		for consequence, tt := range map[string]struct {
			bytes int
			want  time.Duration
		}{
			"a slow log waits no longer": {8 << 10, 2 * time.Second},
			"a fast log waits":           {8<<10 + 1, 5 * time.Second},
			"a full piece does not wait": {64 << 10, 0},
		} {
			if got := sent(tt.bytes); got != tt.want {
				t.Errorf("%s: %d bytes are sent after %s, want %s", consequence, tt.bytes, got, tt.want)
			}
		}
		write(t, s, strings.Repeat("x", 10<<10))
		time.Sleep(3 * time.Second)
		s.SetEvery(500*time.Millisecond, 0) // a reader follows
		<-r.got
		if got := time.Since(last); got > 3*time.Second+20*time.Millisecond {
			t.Errorf("with a follower the bytes that wait are sent after %s", got)
		}
		if _, _, err := s.Close(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	})
}

// On AWS each append is a write that is billed, so a step waits 2 s for more output. But it keeps
// no more than 64 KiB back.
func TestPieceOf64KiBIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		s := open(t, r, logship.Options{Every: 2 * time.Second})
		write(t, s, "first\n")
		<-r.got
		sent := time.Now()
		write(t, s, strings.Repeat("x", 64<<10-1))
		synctest.Wait()
		if len(r.got) > 0 {
			t.Error("less than 64 KiB was sent before the 2 s were over")
		}
		write(t, s, "x")
		synctest.Wait()
		if len(r.got) != 1 || len(r.log) != len("first\n")+64<<10 || !time.Now().Equal(sent) {
			t.Errorf("%d appends and %d bytes after 64 KiB were written, and %s later", len(r.got), len(r.log), time.Since(sent))
		}
		write(t, s, "rest\n")
		for range 2 {
			<-r.got
		}
		if waited := time.Since(sent); waited != 2*time.Second {
			t.Errorf("the rest was sent after %s, want 2 s", waited)
		}
		if _, _, err := s.Close(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEmptyLogSendsNothing(t *testing.T) {
	r := newRemote()
	s := open(t, r, logship.Options{})
	end, _, err := s.Close(t.Context(), 0)
	if err != nil || end.Size != 0 || end.CRC32 != 0 || r.calls != 0 {
		t.Errorf("Close = %+v, %v after %d requests, want an empty log and no request", end, err, r.calls)
	}
}

func TestLostEndOfTheLogIsSentAgain(t *testing.T) {
	r := newRemote()
	lost := false
	r.before = func(r *remote, offset int64, _ []byte) error {
		if offset > 0 && !lost {
			lost = true
			r.log = r.log[:3] // the control plane loses the end of its log, as after a restore from a backup
		}
		return nil
	}
	s := open(t, r, logship.Options{Every: time.Millisecond})
	write(t, s, "one two three\n")
	<-r.got
	write(t, s, "four\n")
	end, _, err := s.Close(t.Context(), 0)
	if err != nil || string(r.log) != "one two three\nfour\n" || end.Truncated || end.Size != int64(len(r.log)) {
		t.Errorf("the control plane has %q; Close = %+v, %v", r.log, end, err)
	}
}

func TestFailedAppendTruncatesTheLog(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*remote, int64, []byte) error
		size   int64 // size of the log; -1: any size
	}{
		"a refusal: the log ends before it": {func(r *remote, offset int64, _ []byte) error {
			if offset > 0 {
				return errors.New("no more")
			}
			return nil
		}, 6},
		"other bytes are stored": {func(r *remote, offset int64, _ []byte) error {
			r.log = []byte("something else")
			return nil
		}, 0},
		"an offset beyond the log": {func(*remote, int64, []byte) error { return &logship.OffsetError{Want: 1 << 40} }, 0},
		"a negative offset":        {func(*remote, int64, []byte) error { return &logship.OffsetError{Want: -1} }, 0},
		"no progress": {func(_ *remote, offset int64, _ []byte) error {
			return &logship.OffsetError{Want: 1 - offset}
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRemote()
			r.before = tc.before
			s := open(t, r, logship.Options{Every: time.Millisecond})
			write(t, s, "first\n")
			if tc.size > 0 {
				<-r.got
			}
			write(t, s, "second\n")
			end, _, err := s.Close(t.Context(), 0)
			if err == nil || !end.Truncated || tc.size >= 0 && end.Size != tc.size {
				t.Errorf("Close = %+v, %v, want a truncated log and an error", end, err)
			}
			if r.calls > 50 {
				t.Errorf("the shipper sent %d requests, want at most 50", r.calls)
			}
		})
	}
}

func TestLogAtItsLimitEndsWithAMarker(t *testing.T) {
	r := newRemote()
	s := open(t, r, logship.Options{Max: 1 << 20, Every: time.Millisecond})
	for range 3 {
		write(t, s, strings.Repeat("x", 600<<10))
	}
	end, _, err := s.Close(t.Context(), 0)
	if err != nil || !end.Truncated || end.Size != int64(len(r.log)) || end.Size > 1<<20+200 {
		t.Errorf("Close = %+v, %v, want a truncated log of about 1 MiB", end, err)
	}
	if !strings.HasSuffix(string(r.log), "the rest was dropped]\n") {
		t.Errorf("the log ends with %q, want the truncation marker", r.log[len(r.log)-80:])
	}
}

func TestStoppedLogIsNotSent(t *testing.T) {
	r := newRemote()
	s := open(t, r, logship.Options{Every: time.Millisecond})
	write(t, s, "first\n")
	<-r.got
	s.Stop()
	write(t, s, "second\n")
	end, _, err := s.Close(t.Context(), 0)
	if !errors.Is(err, logship.ErrStopped) || end.Size != 6 || !end.Truncated || r.calls != 1 {
		t.Errorf("Close = %+v, %v after %d requests, want a truncated log of 6 bytes after one", end, err, r.calls)
	}
	if n, truncated := s.Written(); n != 13 || truncated {
		t.Errorf("the file has %d bytes, truncated %t; want all 13", n, truncated)
	}
}

func TestCloseEndsWithItsContext(t *testing.T) {
	r := newRemote()
	ctx, cancel := context.WithCancel(t.Context())
	r.before = func(*remote, int64, []byte) error { cancel(); return ctx.Err() }
	s := open(t, r, logship.Options{Every: time.Hour})
	write(t, s, "never sent\n")
	end, _, _ := s.Close(ctx, 0)
	if end.Size != 0 || !end.Truncated {
		t.Errorf("Close = %+v, want an empty truncated log", end)
	}
}

func TestCloseDoesNotWaitForAnUnansweredRequest(t *testing.T) {
	sending := make(chan struct{})
	s, err := logship.New(t.Context(), filepath.Join(t.TempDir(), "log"), func(ctx context.Context, _ int64, _ []byte) (int64, error) {
		select {
		case sending <- struct{}{}:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}, logship.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("a line\n")); err != nil {
		t.Fatal(err)
	}
	<-sending
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if end, _, _ := s.Close(over, 0); end.Size != 0 || !end.Truncated {
		t.Errorf("Close = %+v, want an empty truncated log", end)
	}
}

func TestFirstLineIsSentAtOnceAndAStreamPerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		s := open(t, r, logship.Options{})
		for range 2 { // a line after a pause counts as a first line
			began := time.Now()
			write(t, s, "hello\n")
			<-r.got
			if took := time.Since(began); took > 20*time.Millisecond {
				t.Errorf("the first line was sent after %v, want at most 20 ms", took)
			}
			time.Sleep(time.Second)
		}
		r.mu.Lock()
		r.calls = 0
		r.mu.Unlock()
		for range 1000 {
			write(t, s, "line\n")
			time.Sleep(time.Millisecond)
		}
		if _, _, err := s.Close(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if r.calls < 10 || r.calls > 12 {
			t.Errorf("a second of lines was sent in %d requests, want 10 to 12", r.calls)
		}
	})
}

// While no reader follows, bytes wait for two seconds. A shorter interval also applies to bytes that wait already.
func TestShorterIntervalSendsWaitingBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		s := open(t, r, logship.Options{Every: 2 * time.Second})
		write := func(line string) time.Time {
			if _, err := s.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			return time.Now()
		}
		write("first\n")
		<-r.got
		began := write("second\n")
		<-r.got
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the second line was sent after %s, want 2 s", took)
		}
		began = write("third\n")
		synctest.Wait()
		s.SetEvery(500*time.Millisecond, 0)
		<-r.got
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("after a follower came, the line was sent after %s, want 500 ms", took)
		}
		s.SetEvery(2*time.Second, 0)
		began = write("fourth\n")
		<-r.got
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("after the follower left, the line was sent after %s, want 2 s", took)
		}
		if _, _, err := s.Close(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if r.calls != 4 {
			t.Errorf("%d requests, want 4", r.calls)
		}
	})
}

// The report of the job brings the last bytes of a log, if they are few. A longer rest is sent as before.
func TestSmallRestComesWithTheReport(t *testing.T) {
	for name, c := range map[string]struct {
		rest string
		most int64
		tail bool
	}{
		"a small rest":           {"the end", 7, true},
		"a rest that is too big": {"the end.", 7, false},
		"no rest":                {"", 7, false},
		"no rest is accepted":    {"the end", 0, false},
	} {
		r := newRemote()
		s := open(t, r, logship.Options{Every: time.Hour})
		write(t, s, "sent before\n")
		<-r.got
		write(t, s, c.rest)
		end, tail, err := s.Close(t.Context(), c.most)
		if err != nil {
			t.Fatal(err)
		}
		whole := "sent before\n" + c.rest
		if end.Size != int64(len(whole)) || end.CRC32 != crc32.ChecksumIEEE([]byte(whole)) || end.Truncated {
			t.Errorf("%s: the log ends with %+v", name, end)
		}
		if (tail != nil) != c.tail || tail != nil && (string(tail.Data) != c.rest || tail.Offset != 12 || string(r.log) != "sent before\n") || tail == nil && string(r.log) != whole {
			t.Errorf("%s: the rest is %+v, and the control plane has %q", name, tail, r.log)
		}
	}
}
