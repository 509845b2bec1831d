// Package joblogtest is the conformance suite of joblog.Log. It also has a log in memory
// that passes the suite.
//
// The suite tests a driver inside this process in synctest bubbles. A bubble's clock
// advances only when all its goroutines wait. So the suite detects a follower that does not
// wake at an append, and a goroutine that outlives its Follow.
package joblogtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// Harness connects the suite to one driver.
type Harness struct {
	// Open opens the log that stores its data in dir. It returns the log and a function
	// that closes it. After close, Open with the same dir must find the stored data, unless
	// the driver is Volatile.
	Open func(t TB, dir string) (l joblog.Log, close func())

	// MaxStream is the maximum number of bytes in a stream of the driver. It must be a
	// multiple of joblog.MaxAppend. 0 means joblog.MaxStream.
	MaxStream int64

	// Volatile means that the driver loses its data on close. The suite does not test its
	// durability.
	Volatile bool

	// Remote means that the driver uses a server outside this process. The suite tests the
	// driver in real time. Open with a new dir must find an empty log.
	Remote bool
}

// TB has the methods of a test that Open may use. It is a *testing.T or a *rapid.T.
type TB interface {
	Context() context.Context
	Helper()
	Error(args ...any)
	Fatal(args ...any)
}

// suite is the environment of one test.
type suite struct {
	*testing.T
	log     joblog.Log
	harness Harness
	dir     string
	close   func()
}

// brief reports whether a test must make few requests. It is true in a short run with a
// Remote driver.
func (s *suite) brief() bool { return s.harness.Remote && testing.Short() }

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	h.MaxStream = cmp.Or(h.MaxStream, joblog.MaxStream)
	tests := []struct {
		name string
		test func(*suite)
	}{
		{"log is opened, written, read and ended", story},
		{"stream that was never opened is not found", notFound},
		{"second open changes nothing", openAgain},
		{"later epoch fences earlier ones", fencing},
		{"fenced writer's repeat is acknowledged", fencedRepeat},
		{"fenced stream can be ended", fencedEnd},
		{"ended stream refuses new bytes", ended},
		{"first end is permanent", endTwice},
		{"repeat changes nothing", repeat},
		{"overlap adds only the new bytes", overlap},
		{"gap is refused with the expected offset", gap},
		{"different bytes are refused permanently", diverged},
		{"empty append is acknowledged at a valid offset", emptyAppend},
		{"largest append is stored completely, a larger one is refused", maxAppend},
		{"stream is full at its limit", maxStream},
		{"every offset is readable", cursors},
		{"read has a maximum size", readBound},
		{"log and caller share no memory", ownBytes},
		{"checksum matches the bytes", checksum},
		{"follower wakes on an append", followAppend},
		{"follower wakes on the end", followEnd},
		{"follower ahead of the stream waits for its byte", followAhead},
		{"follower returns stored bytes at once", followNow},
		{"follower returns empty and no error when its context ends", followCancelled},
		{"followers of a dropped job get ErrNotFound", followDropped},
		{"writer learns of a follower", noticedFollower},
		{"many followers read the whole stream", manyFollowers},
		{"one of several concurrent appenders wins each offset", concurrentAppenders},
		{"streams are listed by epoch", streams},
		{"drop removes the streams of one job only", drop},
		{"cut stream refuses new bytes and ends truncated", cut},
		{"budget is spent by runner and grows with time", spend},
		{"concurrent spenders are all counted", spendConcurrently},
		{"logs of a noisy runner are cut, and others are not", noisyRunner},
		{"arguments outside the limits are refused", limits},
		{"call with an ended context does nothing", endedContext},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { h.run(t, c.test) })
	}
	t.Run("acknowledged bytes survive reopening", func(t *testing.T) {
		if h.Volatile {
			t.Skip("the driver is volatile")
		}
		h.run(t, reopen)
	})
	t.Run("random calls give the same results as a model", func(t *testing.T) { checkModel(t, h) })
}

func (h Harness) run(t *testing.T, test func(*suite)) {
	dir := t.TempDir()
	body := func(t *testing.T) {
		s := &suite{T: t, harness: h, dir: dir}
		s.open()
		defer func() { s.close() }()
		test(s)
	}
	if h.Remote {
		body(t)
		return
	}
	synctest.Test(t, body)
}

func (s *suite) open() { s.log, s.close = s.harness.Open(s.T, s.dir) }

// settle waits until every other goroutine of the test waits. For a Remote driver it does
// nothing, because in real time it cannot find out whether goroutines wait. The tests also
// pass without settle.
func (s *suite) settle() {
	if !s.harness.Remote {
		synctest.Wait()
	}
}

// clock returns a function that checks that no time has passed since the call of clock. For
// a Remote driver the function checks nothing.
func (s *suite) clock() func() {
	start := time.Now()
	return func() {
		s.Helper()
		if got := time.Since(start); !s.harness.Remote && got != 0 {
			s.Errorf("took %s, want no wait", got)
		}
	}
}

func at(epoch int64) joblog.Stream { return joblog.Stream{Job: "job_1", Epoch: epoch} }

func (s *suite) opened(st joblog.Stream) {
	s.Helper()
	if err := s.log.Open(s.Context(), st); err != nil {
		s.Fatalf("open %s: %v", st, err)
	}
}

func (s *suite) append(st joblog.Stream, offset int64, data string) {
	s.Helper()
	next, err := s.log.Append(s.Context(), st, offset, []byte(data))
	if want := offset + int64(len(data)); err != nil || next != want {
		s.Fatalf("append %d bytes at %d of %s: %d, %v; want %d", len(data), offset, st, next, err, want)
	}
}

func (s *suite) end(st joblog.Stream, truncated bool) {
	s.Helper()
	if err := s.log.End(s.Context(), st, truncated); err != nil {
		s.Fatalf("end %s: %v", st, err)
	}
}

// refused checks that the append fails with want and stores nothing.
func (s *suite) refused(st joblog.Stream, offset int64, data string, want error) {
	s.Helper()
	before := s.info(st)
	if _, err := s.log.Append(s.Context(), st, offset, []byte(data)); !errors.Is(err, want) {
		s.Errorf("append at %d of %s: %v, want %q", offset, st, err, want)
	}
	if after := s.info(st); after != before {
		s.Errorf("a refused append changed %+v to %+v", before, after)
	}
}

// wants checks that the append fails with an OffsetError with the offset want, and stores
// nothing.
func (s *suite) wants(st joblog.Stream, offset int64, data string, want int64) {
	s.Helper()
	before := s.info(st)
	_, err := s.log.Append(s.Context(), st, offset, []byte(data))
	e, ok := errors.AsType[*joblog.OffsetError](err)
	if !ok || e.Want != want {
		s.Errorf("append at %d of %s: %v, want an OffsetError with %d", offset, st, err, want)
	}
	if after := s.info(st); after != before {
		s.Errorf("a refused append changed %+v to %+v", before, after)
	}
}

func (s *suite) read(st joblog.Stream, offset int64, limit int) joblog.Chunk {
	s.Helper()
	c, err := s.log.Read(s.Context(), st, offset, limit)
	if err != nil {
		s.Fatalf("read %d bytes at %d of %s: %v", limit, offset, st, err)
	}
	return c
}

func (s *suite) info(st joblog.Stream) joblog.Info {
	s.Helper()
	return s.read(st, 0, 1).Info
}

// all reads the whole stream in pieces of limit bytes, and checks its Info.
func (s *suite) all(st joblog.Stream, limit int) []byte {
	s.Helper()
	var data []byte
	for {
		c := s.read(st, int64(len(data)), limit)
		data = append(data, c.Data...)
		if c.Next != int64(len(data)) {
			s.Fatalf("after %d bytes Next is %d", len(data), c.Next)
		}
		if len(c.Data) > 0 {
			continue
		}
		if c.Info.Stream != st || c.Info.Size != c.Next || c.Info.CRC32 != crc32.ChecksumIEEE(data) || c.Ended != c.Info.Ended {
			s.Fatalf("read %d bytes with checksum %08x of %s; the log reports %+v, ended %v",
				len(data), crc32.ChecksumIEEE(data), st, c.Info, c.Ended)
		}
		return data
	}
}

func (s *suite) holds(st joblog.Stream, want string) {
	s.Helper()
	if got := s.all(st, joblog.MaxRead); !bytes.Equal(got, []byte(want)) {
		s.Fatalf("%s has %.100q, want %.100q", st, got, want)
	}
}

// followed is the result of a follower in a goroutine.
type followed struct {
	joblog.Chunk
	err error
}

// follower starts Follow in a goroutine. The channel gets the result.
func (s *suite) follower(ctx context.Context, st joblog.Stream, offset int64) <-chan followed {
	got := make(chan followed, 1)
	go func() {
		c, err := s.log.Follow(ctx, st, offset, joblog.MaxRead)
		got <- followed{c, err}
	}()
	return got
}
