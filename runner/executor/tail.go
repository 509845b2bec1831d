package executor

import "strings"

// Tail keeps the last bytes that are written to it. Use it from one goroutine.
type Tail struct {
	limit int
	b     []byte
}

// NewTail returns a Tail that keeps up to limit bytes.
func NewTail(limit int) *Tail { return &Tail{limit: limit} }

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*t.limit+4096 { // move the bytes rarely, so that each byte is moved about once
		t.b = append(t.b[:0], t.b[len(t.b)-t.limit:]...)
	}
	return len(p), nil
}

// String returns the kept bytes as valid UTF-8.
func (t *Tail) String() string {
	return strings.ToValidUTF8(string(t.b[max(0, len(t.b)-t.limit):]), "")
}
