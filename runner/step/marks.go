package step

import (
	"bytes"
	"io"
	"sync"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// marks writes a job's log with the marks of its sections, and keeps what begins
// like a mark out of what others write: a module could hide its lines from people who
// read folded logs. Safe for concurrent use.
type marks struct {
	w io.Writer

	mu   sync.Mutex
	held bool // an escape was written last, and is not passed on yet
}

// Write passes p on. Of what would begin an APC string the escape is left out.
func (m *marks) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	out := p
	if m.held {
		out = append([]byte(wire.LogMarkOpens[:1]), p...)
	}
	if m.held = out[len(out)-1] == wire.LogMarkOpens[0]; m.held {
		out = out[:len(out)-1]
	}
	if bytes.Contains(out, []byte(wire.LogMarkOpens)) {
		out = bytes.ReplaceAll(out, []byte(wire.LogMarkOpens), []byte(wire.LogMarkOpens[1:]))
	}
	if len(out) == 0 {
		return len(p), nil
	}
	if _, err := m.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// mark writes a mark behind all that was written before.
func (m *marks) mark(k wire.LogMark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	m.w.Write(k.Encode()) // a log that cannot be written is found out at its end
}

// end passes on what is held.
func (m *marks) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
}

func (m *marks) flush() {
	if m.held {
		m.held = false
		m.w.Write([]byte(wire.LogMarkOpens[:1]))
	}
}
