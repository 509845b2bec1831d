// Package logship sends a job's log to the control plane while the job runs. A write goes to a file
// first. So the writer never waits for the network, and the package needs little memory. A goroutine
// sends the file's bytes with their offsets.
package logship

import (
	"cmp"
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
	// defaultMax is below the control plane's limit of 64 MiB, so that the truncation marker always
	// fits.
	defaultMax   = 48 << 20
	defaultEvery = 100 * time.Millisecond // a third of the longest delay of a line for a reader
	// soon is how long the first byte after a pause waits for more bytes, because a tool prints several
	// lines at once and then pauses. As the wait is short, most of the log has arrived when the job
	// ends.
	soon         = 20 * time.Millisecond
	defaultBatch = 64 << 10
	maxAppend    = 1 << 20 // bytes of one append: the control plane's limit
)

// truncation is the last line of a log that reached its limit.
const truncation = "\n[fairlead: the log has reached its limit of %d MiB; the rest was dropped]\n"

// Append stores data at offset in the control plane's log and returns the offset after data. If the
// control plane's log ends at another offset, the error is an *OffsetError. Every other error is final.
type Append func(ctx context.Context, offset int64, data []byte) (next int64, err error)

// OffsetError reports that the control plane's log continues at offset Want.
type OffsetError struct{ Want int64 }

func (e *OffsetError) Error() string { return fmt.Sprintf("the log continues at offset %d", e.Want) }

// Answered converts the error of an append request. It returns an *OffsetError if the control plane
// reported the log's end. Otherwise it returns err.
func Answered(err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code() == "log-offset" {
		if want, perr := strconv.ParseInt(e.Details["want"], 10, 64); perr == nil {
			return &OffsetError{Want: want}
		}
	}
	return err
}

// Options of a Shipper. The zero value means the defaults.
type Options struct {
	Max   int64         // largest size of the log in bytes; 0: 48 MiB
	Every time.Duration // longest time that a byte waits before it is sent; 0: 100 ms
	Bulk  time.Duration // the same for more than wire.LogBulk bytes, of a log that grows fast; 0, or less than Every: Every
	Batch int           // number of bytes that are sent without waiting; 0: 64 KiB
}

// Shipper is an io.Writer that sends its bytes to the control plane. Safe for concurrent use.
type Shipper struct {
	append Append
	opt    Options
	file   *os.File
	wake   chan struct{}
	done   chan struct{}      // closed when the goroutine has ended
	stop   context.CancelFunc // cancels the goroutine's request
	closed chan struct{}      // closed by Close

	mu        sync.Mutex
	every     time.Duration // longest time that a byte waits
	bulkEvery time.Duration // the same in a piece of more than wire.LogBulk bytes
	written   int64
	truncated bool
	acked     int64 // end of the control plane's log
	high      int64 // largest acked so far
	stuck     int   // number of appends without progress since high
	err       error // of an append that is not retried
}

// maxStuck is the number of allowed appends without progress beyond high. Lost responses or a restored
// server cause few such appends. More of them mean a bug.
const maxStuck = 8

// New returns a Shipper that writes to the file at path, and sends the bytes with append until ctx ends.
// The caller must call Close.
func New(ctx context.Context, path string, append Append, o Options) (*Shipper, error) {
	if o.Max == 0 {
		o.Max = defaultMax
	}
	if o.Batch == 0 {
		o.Batch = defaultBatch
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log spool: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Shipper{append: append, opt: o, file: f, wake: make(chan struct{}, 1), done: make(chan struct{}), closed: make(chan struct{}), stop: stop, every: cmp.Or(o.Every, defaultEvery), bulkEvery: o.Bulk}
	go s.run(ctx)
	return s, nil
}

// Write appends p to the log. It never fails, because a log must not stop the tool. At the size limit,
// or on a full disk, Write drops the rest of the log and marks the log as truncated.
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

// SetEvery changes the longest times that bytes wait before they are sent: in a piece of any size (0: 100 ms), and in one of more than
// wire.LogBulk bytes. It also applies to bytes that are waiting.
func (s *Shipper) SetEvery(every, bulk time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.every, s.bulkEvery = cmp.Or(every, defaultEvery), bulk
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// ErrStopped is the error of Close after Stop.
var ErrStopped = errors.New("send log: the control plane accepts no more of it: the runner has used up its budget of log bytes")

// Stop makes the Shipper send no more bytes. Write still accepts them. The log is truncated, unless it has ended here.
func (s *Shipper) Stop() {
	_ = s.fail(ErrStopped)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Shipper) interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.every
}

// longer returns how much longer than the interval the bytes may wait, because there are many.
func (s *Shipper) longer() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written-s.acked <= wire.LogBulk {
		return 0
	}
	return s.bulkEvery - s.every
}

// Written returns the size of the log in the file, and whether some bytes were dropped.
func (s *Shipper) Written() (n int64, truncated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written, s.truncated
}

// Close sends the rest of the log until ctx ends, but returns the last bytes instead if there are at most
// most: the report of the job brings them, without a request of their own. It also returns the size and
// checksum of the part that arrived, or that the report brings. If a part did not arrive, the log is marked as
// truncated, and the error is the reason.
func (s *Shipper) Close(ctx context.Context, most int64) (wire.LogEnd, *wire.LogTail, error) {
	close(s.closed)
	defer s.stop()
	defer context.AfterFunc(ctx, s.stop)() // a running request may never get a response
	<-s.done
	defer s.file.Close()
	for s.failure() == nil && s.pending() > most {
		if err := s.send(ctx); err != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var tail *wire.LogTail
	if n := s.written - s.acked; s.err == nil && 0 < n && n <= most {
		t := wire.LogTail{Offset: s.acked, Data: make([]byte, n)}
		if _, err := s.file.ReadAt(t.Data, t.Offset); err == nil {
			tail, s.acked = &t, s.written
		}
	}
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, io.NewSectionReader(s.file, 0, s.acked))
	if err == nil {
		err = s.err
	}
	return wire.LogEnd{Size: n, CRC32: sum.Sum32(), Truncated: s.truncated || n < s.written}, tail, err
}

// maxSpool is the largest file that a Shipper writes with the default Options. A larger file was not
// written by a Shipper.
const maxSpool = defaultMax + 1<<10

// Rescue sends the rest of a log whose Shipper was killed. It refuses a file that is not a regular file,
// because the job may have replaced the log file. Rescue starts with the last 64 KiB of the log. It
// sends more only if the control plane lacks earlier bytes.
func Rescue(ctx context.Context, path string, append Append) error {
	f, err := safefile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the step died before it had a log
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
		return fmt.Errorf("read log spool: the file has %d bytes, more than a log can have", st.Size())
	}
	s := &Shipper{append: append, file: f, written: st.Size(), acked: max(0, st.Size()-defaultBatch)}
	for s.pending() > 0 {
		if err := s.send(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Sum returns the CRC-32 checksum (IEEE) of the log in the regular file at path. The file must have size
// bytes. A log of 0 bytes needs no file.
func Sum(path string, size int64) (uint32, error) {
	sum := crc32.NewIEEE()
	if size == 0 {
		return sum.Sum32(), nil
	}
	if size > maxSpool {
		return 0, fmt.Errorf("read log spool: %d bytes are more than a log can have", size)
	}
	f, err := safefile.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open log spool: %w", err)
	}
	defer f.Close()
	n, err := io.Copy(sum, io.LimitReader(f, maxSpool+1))
	if err == nil && n != size {
		err = fmt.Errorf("the file has %d bytes, want %d", n, size)
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
	timer := time.NewTimer(s.interval())
	defer timer.Stop()
	var sent time.Time
	// The first byte waits a short time for more bytes. A continuous stream is sent once in each
	// period, or as soon as a batch is full.
	wait := func(every time.Duration) time.Duration { return max(min(soon, every), every-time.Since(sent)) }
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
		every := s.interval()
		timer.Reset(wait(every))
		waited := false // for the interval; now for that of many bytes
	collect:
		for s.pending() < int64(s.opt.Batch) {
			if now := s.interval(); now != every {
				every, waited = now, false
				timer.Reset(wait(every))
			}
			select {
			case <-timer.C:
				longer := s.longer()
				if waited || longer <= 0 {
					break collect
				}
				waited = true
				timer.Reset(longer)
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

// send sends one batch. Appends are idempotent, so a batch whose response was lost is sent again, from
// the offset that the control plane reports.
func (s *Shipper) send(ctx context.Context) error {
	s.mu.Lock()
	from, n, stopped := s.acked, min(s.written-s.acked, maxAppend), s.err
	s.mu.Unlock()
	if stopped != nil {
		return stopped
	}
	buf := make([]byte, n)
	if _, err := s.file.ReadAt(buf, from); err != nil && !errors.Is(err, io.EOF) {
		return s.fail(fmt.Errorf("read log spool: %w", err))
	}
	next, err := s.append(ctx, from, buf)
	if want, ok := errors.AsType[*OffsetError](err); ok {
		// The control plane's log is shorter if the control plane was restored, or never got the bytes. It
		// is longer if a response was lost. An offset beyond the bytes of this batch is an error.
		if want.Want < 0 || want.Want > from+n || want.Want == from {
			return s.fail(fmt.Errorf("send log: %w", err))
		}
		next, err = want.Want, nil
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // Close retries with its own context
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
		return s.fail(fmt.Errorf("send log: the control plane accepts no bytes after offset %d", next))
	}
	return nil
}

func (s *Shipper) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}
