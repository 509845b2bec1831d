package agent

import "sync"

// keptLog is how many bytes of the agent's log are kept. They hold some hundred lines and use little
// memory.
const keptLog = 64 << 10

// recent is a writer that keeps the last keptLog bytes. The zero value is ready. Safe for
// concurrent use.
type recent struct {
	mu   sync.Mutex
	b    []byte
	lost bool // older bytes were dropped
}

// Write never fails.
func (r *recent) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b = append(r.b, p...)
	if len(r.b) > 2*keptLog { // a byte is moved about once on average
		r.b, r.lost = append(r.b[:0], r.b[len(r.b)-keptLog:]...), true
	}
	return len(p), nil
}

// lines returns the kept bytes from the beginning of a line, and whether older ones were dropped.
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
