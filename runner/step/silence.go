package step

import (
	"io"
	"sync/atomic"
	"time"
)

// silence is the way of a tool's output to its log, and knows how long there has
// been none. It counts by the clock that nobody sets, and begins when it is
// made. Safe for concurrent use.
type silence struct {
	out   io.Writer
	since time.Time
	last  atomic.Int64 // nanoseconds after since; negative: the tool is done
}

func newSilence(out io.Writer) *silence { return &silence{out: out, since: time.Now()} }

func (s *silence) Write(p []byte) (int, error) {
	if len(p) > 0 {
		s.last.Store(int64(time.Since(s.since)))
	}
	return s.out.Write(p)
}

// over ends the counting: what follows the tool, such as the shipping of the
// rest of its log, is silent by its nature.
func (s *silence) over() { s.last.Store(-1) }

// length returns how long nothing was written; 0 once it is over.
func (s *silence) length() time.Duration {
	last := time.Duration(s.last.Load())
	if last < 0 {
		return 0
	}
	return time.Since(s.since) - last
}
