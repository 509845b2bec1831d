package agent

import "sync"

// keptLog is how much of the agent's log is kept, in bytes: some hundred lines, and
// little beside the memory that an agent takes.
const keptLog = 64 << 10

// recent keeps the end of what is written to it. The zero value is ready. Safe
// for concurrent use.
type recent struct {
	mu   sync.Mutex
	b    []byte
	lost bool // something before it
}

// Write never fails.
func (r *recent) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b = append(r.b, p...)
	if len(r.b) > 2*keptLog { // seldom, so that a byte is moved about once
		r.b, r.lost = append(r.b[:0], r.b[len(r.b)-keptLog:]...), true
	}
	return len(p), nil
}

// lines returns what is kept, from the beginning of a line.
func (r *recent) lines() (text []byte, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from, lost := max(0, len(r.b)-keptLog), r.lost
	if lost = lost || from > 0; lost {
		for from < len(r.b) && (from == 0 || r.b[from-1] != '\n') {
			from++
		}
	}
	return append([]byte(nil), r.b[from:]...), lost
}
