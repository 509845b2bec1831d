package toolprocess

import (
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// maxTail is how much of a tool's output a Tail keeps, in bytes; maxCause is the longest error in a message.
const (
	maxTail  = 4 << 10
	maxCause = 500
)

// Tail passes a tool's output on, and keeps its end. Safe for concurrent use: a tool has two outputs.
type Tail struct {
	To io.Writer

	mu   sync.Mutex
	last []byte
}

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if n := len(t.last) - maxTail; n > 0 {
		t.last = t.last[n:]
	}
	return t.To.Write(p)
}

// Cause returns the error with which the tool ended: the last line that begins with the prefix, without the prefix, or else
// the last line.
func (t *Tail) Cause(prefix string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.last)), "\n")
	for _, line := range slices.Backward(lines) {
		if text, ok := strings.CutPrefix(line, prefix); ok {
			return fairlead.Clip(text, maxCause)
		}
	}
	return fairlead.Clip(lines[len(lines)-1], maxCause)
}
