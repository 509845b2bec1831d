package step

import (
	"bytes"
	"io"
	"sync"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// marks writes a job's log and the log's section marks. It removes the beginnings of marks from all other output, because
// with a forged mark a module could hide its lines from people who read folded logs. Safe for concurrent use.
type marks struct {
	w io.Writer

	mu         sync.Mutex
	escapeHeld bool // the last byte written was an escape, and Write has not passed it on yet
}

// Write passes p on. It drops the escape of every sequence that would open a mark (an APC string).
func (m *marks) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	out := p
	if m.escapeHeld {
		out = append([]byte(wire.LogMarkOpens[:1]), p...)
	}
	if m.escapeHeld = out[len(out)-1] == wire.LogMarkOpens[0]; m.escapeHeld {
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

// mark writes a mark after all earlier output. It ignores an error of the writer.
func (m *marks) mark(k wire.LogMark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	m.w.Write(k.Encode()) // closing the log reports a write error
}

// end passes on an escape that Write holds.
func (m *marks) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
}

func (m *marks) flush() {
	if m.escapeHeld {
		m.escapeHeld = false
		m.w.Write([]byte(wire.LogMarkOpens[:1]))
	}
}
