package step

import (
	"io"
	"sync/atomic"
	"time"
)

// outputClock passes a tool's output to the job's log and measures the time since the last byte, on the monotonic clock. The
// clock starts when the outputClock is created. Safe for concurrent use.
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

// stop stops the clock when the tool has ended. The time in which the step sends the rest of the log does not count.
func (c *outputClock) stop() { c.last.Store(-1) }

// sinceLast returns the time since the last byte of output; 0 after stop.
func (c *outputClock) sinceLast() time.Duration {
	last := time.Duration(c.last.Load())
	if last < 0 {
		return 0
	}
	return time.Since(c.since) - last
}
