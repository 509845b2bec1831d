// Package logship carries a job's log to the control plane as it comes. What
// is written goes to a file first, so the writer never waits for the network
// and memory stays small; a goroutine sends the file's bytes at their offsets.
package logship

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// The defaults of Options.
const (
	// defaultMax is below the 64 MiB that a log may have at the control plane,
	// so that the marker of a truncation always fits.
	defaultMax   = 48 << 20
	defaultEvery = 100 * time.Millisecond // a third of what a reader may wait for a line
	// soon is how long the first byte after a pause waits for company. A tool
	// says what it has to say in one go, and then works on: by the time that the
	// job ends, its log has mostly arrived.
	soon         = 20 * time.Millisecond
	defaultBatch = 64 << 10
	maxAppend    = 1 << 20 // bytes in one append: the control plane's limit
)

// truncation ends a log that has reached its limit.
const truncation = "\n[fairlead: the log has reached its limit of %d MiB; what followed is not kept]\n"

// Append stores data at offset and returns the offset after it. An *OffsetError
// says where the log ends at the other side; every other error is final.
type Append func(ctx context.Context, offset int64, data []byte) (next int64, err error)

// OffsetError says that the log at the other side goes on at Want.
type OffsetError struct{ Want int64 }

func (e *OffsetError) Error() string { return fmt.Sprintf("the log continues at %d", e.Want) }

// Answered returns the error of an append to the control plane: an *OffsetError if the
// control plane says where the log goes on.
func Answered(err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code() == "log-offset" {
		if want, perr := strconv.ParseInt(e.Details["want"], 10, 64); perr == nil {
			return &OffsetError{Want: want}
		}
	}
	return err
}

// Options of a Shipper; the zero value is useful.
type Options struct {
	Max   int64         // bytes kept; 0: 48 MiB
	Every time.Duration // longest wait of a byte before it is sent; 0: 100 ms
	Batch int           // bytes that are sent without waiting; 0: 64 KiB
}

// Shipper is an io.Writer whose bytes arrive at the control plane. Safe for
// concurrent use.
type Shipper struct {
	append Append
	opt    Options
	file   *os.File
	wake   chan struct{}
	done   chan struct{}      // closed when the goroutine has ended
	stop   context.CancelFunc // ends the goroutine's send
	closed chan struct{}      // closed by Close

	mu        sync.Mutex
	written   int64
	truncated bool
	acked     int64
	high      int64 // the most that was ever acknowledged
	stuck     int   // appends that brought nothing further since then
	err       error // of the last append that will not be repeated
}

// maxStuck is how many appends may bring nothing further, or throw us back,
// before one gets beyond all that was ever acknowledged. A few come of lost
// answers or of a restored server, more of a fault.
const maxStuck = 8

// New returns a Shipper that spools to the file at path and sends with append
// until ctx ends. Call Close.
func New(ctx context.Context, path string, append Append, o Options) (*Shipper, error) {
	if o.Max == 0 {
		o.Max = defaultMax
	}
	if o.Every == 0 {
		o.Every = defaultEvery
	}
	if o.Batch == 0 {
		o.Batch = defaultBatch
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log spool: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Shipper{append: append, opt: o, file: f, wake: make(chan struct{}, 1), done: make(chan struct{}), closed: make(chan struct{}), stop: stop}
	go s.run(ctx)
	return s, nil
}

// Write keeps p. It never fails: past the limit, or on a full disk, the rest of
// the log is dropped and the log is marked as truncated, because a log must not
// stop the tool.
func (s *Shipper) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	if s.truncated {
		return n, nil
	}
	if s.written+int64(n) > s.opt.Max {
		s.truncated = true
		p = append(p[:s.opt.Max-s.written:s.opt.Max-s.written], fmt.Sprintf(truncation, s.opt.Max>>20)...)
	}
	k, err := s.file.WriteAt(p, s.written)
	s.written += int64(k)
	if err != nil {
		s.truncated = true
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return n, nil
}

// Written returns how many bytes are kept, and whether some were dropped.
func (s *Shipper) Written() (n int64, truncated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written, s.truncated
}

// Close sends what is left, until ctx ends, and describes the log as far as it
// has arrived: a log that did not arrive whole is truncated. The error says why
// it did not.
func (s *Shipper) Close(ctx context.Context) (wire.LogEnd, error) {
	close(s.closed)
	defer s.stop()
	defer context.AfterFunc(ctx, s.stop)() // a send that is under way may never be answered
	<-s.done
	defer s.file.Close()
	for s.failure() == nil && s.pending() > 0 {
		if err := s.send(ctx); err != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, io.NewSectionReader(s.file, 0, s.acked))
	if err == nil {
		err = s.err
	}
	return wire.LogEnd{Size: n, CRC32: sum.Sum32(), Truncated: s.truncated || n < s.written}, err
}

// maxSpool is the most that a Shipper writes with the default Options. A file
// that has more was not written by one.
const maxSpool = defaultMax + 1<<10

// Rescue sends what a Shipper that was killed has left in its file, which must
// be a regular one: the job may have made something else of it. What has arrived
// before is not sent again, but for the last piece.
func Rescue(ctx context.Context, path string, append Append) error {
	f, err := safefile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it died before it had a log
	}
	if err != nil {
		return fmt.Errorf("open log spool: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open log spool: %w", err)
	}
	if st.Size() > maxSpool {
		return fmt.Errorf("read log spool: it has %d bytes, more than a log may have", st.Size())
	}
	s := &Shipper{append: append, file: f, written: st.Size(), acked: max(0, st.Size()-defaultBatch)}
	for s.pending() > 0 {
		if err := s.send(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Sum returns the checksum (IEEE) of the log in the regular file at path, which
// is of size bytes. A log of none needs no file.
func Sum(path string, size int64) (uint32, error) {
	sum := crc32.NewIEEE()
	if size == 0 {
		return sum.Sum32(), nil
	}
	if size > maxSpool {
		return 0, fmt.Errorf("read log spool: %d bytes are more than a log may have", size)
	}
	f, err := safefile.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open log spool: %w", err)
	}
	defer f.Close()
	n, err := io.Copy(sum, io.LimitReader(f, maxSpool+1))
	if err == nil && n != size {
		err = fmt.Errorf("it has %d bytes, not %d", n, size)
	}
	if err != nil {
		return 0, fmt.Errorf("read log spool: %w", err)
	}
	return sum.Sum32(), nil
}

func (s *Shipper) pending() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written - s.acked
}

func (s *Shipper) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Shipper) run(ctx context.Context) {
	defer close(s.done)
	timer := time.NewTimer(s.opt.Every)
	defer timer.Stop()
	var sent time.Time
	for {
		for s.pending() == 0 {
			select {
			case <-s.closed:
				return
			case <-ctx.Done():
				return
			case <-s.wake:
			}
		}
		// The first byte waits for company, but not for long. One who writes all
		// the time is sent once in every period, or as soon as a batch is there.
		timer.Reset(max(min(soon, s.opt.Every), s.opt.Every-time.Since(sent)))
	collect:
		for s.pending() < int64(s.opt.Batch) {
			select {
			case <-timer.C:
				break collect
			case <-s.wake:
			case <-s.closed:
				return
			case <-ctx.Done():
				return
			}
		}
		if s.send(ctx) != nil {
			return // Close reports it
		}
		sent = time.Now()
		select {
		case <-s.closed:
			return
		default:
		}
	}
}

// send sends one batch. Appends are idempotent, so a batch whose answer was
// lost is sent again, from wherever the other side says it is.
func (s *Shipper) send(ctx context.Context) error {
	s.mu.Lock()
	from, n := s.acked, min(s.written-s.acked, maxAppend)
	s.mu.Unlock()
	buf := make([]byte, n)
	if _, err := s.file.ReadAt(buf, from); err != nil && !errors.Is(err, io.EOF) {
		return s.fail(fmt.Errorf("read log spool: %w", err))
	}
	next, err := s.append(ctx, from, buf)
	if want, ok := errors.AsType[*OffsetError](err); ok {
		// The other side lost the end (it was restored, or never had it), or it
		// has more because an answer was lost. Beyond what we wrote is not ours.
		if want.Want < 0 || want.Want > from+n || want.Want == from {
			return s.fail(fmt.Errorf("send log: %w", err))
		}
		next, err = want.Want, nil
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // Close tries again with a context of its own
		}
		return s.fail(fmt.Errorf("send log: %w", err))
	}
	if next < 0 || next > from+n {
		return s.fail(fmt.Errorf("send log: the control plane acknowledged %d of %d bytes", next, from+n))
	}
	s.mu.Lock()
	s.acked = next
	switch {
	case next > s.high:
		s.high, s.stuck = next, 0
	case next <= from:
		s.stuck++
	}
	stuck := s.stuck
	s.mu.Unlock()
	if stuck > maxStuck {
		return s.fail(fmt.Errorf("send log: the control plane does not get beyond byte %d", next))
	}
	return nil
}

func (s *Shipper) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}
