// Package joblogtest is the conformance suite of joblog.Log, and a log in
// memory that passes it.
//
// A driver inside this process is tested in synctest bubbles: the clock stands
// still while anybody works, so a follower that waits for anything but the
// append that wakes it fails, and one that outlives its call does too.
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

// Harness reaches one driver.
type Harness struct {
	// Open opens the log that keeps its data in dir, and returns what closes
	// it. Opening the same dir again after closing must find what was stored.
	Open func(t TB, dir string) (l joblog.Log, close func())

	// MaxStream is the most bytes in a stream of the driver; 0: joblog.MaxStream.
	// It is a multiple of joblog.MaxAppend.
	MaxStream int64

	// Volatile drivers keep nothing after close: not tested for durability.
	Volatile bool

	// Remote drivers reach a server outside of this process: tested in real
	// time. Each Open of a new dir must find an empty log.
	Remote bool
}

// TB is what Open may use of a test, which is a *testing.T or a *rapid.T.
type TB interface {
	Context() context.Context
	Helper()
	Error(args ...any)
	Fatal(args ...any)
}

// suite is what a test works with.
type suite struct {
	*testing.T
	log     joblog.Log
	harness Harness
	dir     string
	close   func()
}

// brief reports whether to make few requests: in a short run, to a server.
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
		{"opening again changes nothing", openAgain},
		{"later epoch fences earlier ones", fencing},
		{"fenced writer is told again what is stored", fencedRepeat},
		{"fenced stream can be ended", fencedEnd},
		{"ended stream takes no more", ended},
		{"first end stays", endTwice},
		{"repeat changes nothing", repeat},
		{"overlap adds what is new", overlap},
		{"gap is refused with the offset that is wanted", gap},
		{"other bytes are refused for good", diverged},
		{"empty append is acknowledged where it fits", emptyAppend},
		{"append is stored whole or not at all up to the limit", maxAppend},
		{"stream is full at its limit", maxStream},
		{"any cursor reads the rest", cursors},
		{"read is bounded", readBound},
		{"caller's bytes are its own", ownBytes},
		{"checksum is that of the bytes", checksum},
		{"follower wakes on an append", followAppend},
		{"follower wakes on the end", followEnd},
		{"follower ahead of the stream waits for its byte", followAhead},
		{"follower returns at once what is there", followNow},
		{"follower of a context that ends returns empty and no error", followCancelled},
		{"followers of a dropped job are told", followDropped},
		{"many followers read all of it", manyFollowers},
		{"of concurrent appenders one wins each offset", concurrentAppenders},
		{"streams are listed by epoch", streams},
		{"dropped job has no streams, and others keep theirs", drop},
		{"arguments outside the limits are refused", limits},
		{"ended context does nothing", endedContext},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { h.run(t, c.test) })
	}
	t.Run("what was acknowledged is there after reopening", func(t *testing.T) {
		if h.Volatile {
			t.Skip("the driver keeps nothing")
		}
		h.run(t, reopen)
	})
	t.Run("any sequence of calls agrees with a model", func(t *testing.T) { checkModel(t, h) })
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

// settle waits until every other goroutine of the test waits for something.
// In real time it cannot be known; the tests hold without it, too.
func (s *suite) settle() {
	if !s.harness.Remote {
		synctest.Wait()
	}
}

// clock returns a function that checks that no time has passed since.
func (s *suite) clock() func() {
	start := time.Now()
	return func() {
		s.Helper()
		if got := time.Since(start); !s.harness.Remote && got != 0 {
			s.Errorf("took %s, want to be woken at once", got)
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

// wants checks that the append fails with an OffsetError.
func (s *suite) wants(st joblog.Stream, offset int64, data string, want int64) {
	s.Helper()
	before := s.info(st)
	_, err := s.log.Append(s.Context(), st, offset, []byte(data))
	e, ok := errors.AsType[*joblog.OffsetError](err)
	if !ok || e.Want != want {
		s.Errorf("append at %d of %s: %v, want an offset error that asks for %d", offset, st, err, want)
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

// all reads the whole stream in pieces of limit bytes and checks what the
// store says about it.
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
			s.Fatalf("read %d bytes with checksum %08x of %s; the log says %+v, ended %v",
				len(data), crc32.ChecksumIEEE(data), st, c.Info, c.Ended)
		}
		return data
	}
}

func (s *suite) holds(st joblog.Stream, want string) {
	s.Helper()
	if got := s.all(st, joblog.MaxRead); !bytes.Equal(got, []byte(want)) {
		s.Fatalf("%s holds %.100q, want %.100q", st, got, want)
	}
}

// followed is what a follower in a goroutine got.
type followed struct {
	joblog.Chunk
	err error
}

// follower starts a Follow in the background.
func (s *suite) follower(ctx context.Context, st joblog.Stream, offset int64) <-chan followed {
	got := make(chan followed, 1)
	go func() {
		c, err := s.log.Follow(ctx, st, offset, joblog.MaxRead)
		got <- followed{c, err}
	}()
	return got
}
