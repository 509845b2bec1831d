package step

import (
	"io"
	"sync/atomic"
	"time"
)

// outputClock passes a tool's output to its log and measures the time since the last byte, on the monotonic clock. It
// starts when it is made. Safe for concurrent use.
type outputClock struct {
	out   io.Writer
	since time.Time
	last  atomic.Int64 // nanoseconds after since; negative: the tool has ended
}

func newOutputClock(out io.Writer) *outputClock { return &outputClock{out: out, since: time.Now()} }

func (c *outputClock) Write(p []byte) (int, error) {
	if len(p) > 0 {
		c.last.Store(int64(time.Since(c.since)))
	}
	return c.out.Write(p)
}

// over stops the clock. What follows the tool, such as shipping the rest of its log, is not the tool's output.
func (c *outputClock) over() { c.last.Store(-1) }

// length returns the time since the last output; 0 after over.
func (c *outputClock) length() time.Duration {
	last := time.Duration(c.last.Load())
	if last < 0 {
		return 0
	}
	return time.Since(c.since) - last
}
