package step

import (
	"io"
	"sync/atomic"
	"time"
)

// outputClock passes a tool's output on to its log, and knows how long there has
// been none. It counts by the clock that nobody sets, and begins when it is
// made. Safe for concurrent use.
type outputClock struct {
	out   io.Writer
	since time.Time
	last  atomic.Int64 // nanoseconds after since; negative: the tool is done
}

func newOutputClock(out io.Writer) *outputClock { return &outputClock{out: out, since: time.Now()} }

func (c *outputClock) Write(p []byte) (int, error) {
	if len(p) > 0 {
		c.last.Store(int64(time.Since(c.since)))
	}
	return c.out.Write(p)
}

// over ends the counting: what follows the tool, such as the shipping of the
// rest of its log, has no output of the tool.
func (c *outputClock) over() { c.last.Store(-1) }

// length returns how long nothing was written; 0 once it is over.
func (c *outputClock) length() time.Duration {
	last := time.Duration(c.last.Load())
	if last < 0 {
		return 0
	}
	return time.Since(c.since) - last
}
