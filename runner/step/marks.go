package step

import (
	"bytes"
	"io"
	"sync"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// marks writes a job's log and its section marks. It removes mark openings from other output: with a forged mark, a
// module could hide its lines from people who read folded logs. Safe for concurrent use.
type marks struct {
	w io.Writer

	mu   sync.Mutex
	held bool // the last byte written was an escape, which is not yet passed on
}

// Write passes p on. It drops the escape of every sequence that would open a mark (an APC string).
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

// mark writes a mark after all earlier output.
func (m *marks) mark(k wire.LogMark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	m.w.Write(k.Encode()) // the log's end reports a write error
}

// end passes on a held escape.
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
