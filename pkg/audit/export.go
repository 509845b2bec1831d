package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

func sortedFields(a, b map[string]json.RawMessage) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// Key is a public key of a control plane.
type Key struct {
	ID        string `json:"id"`
	PublicKey []byte `json:"public_key"` // Ed25519, 32 bytes
}

// Header begins an export.
type Header struct {
	V        int       `json:"v"` // 1
	Org      string    `json:"org"`
	At       time.Time `json:"at"`              // when it was made
	Chain    string    `json:"chain,omitempty"` // the only chain in it; "": all chains
	KeptDays int       `json:"kept_days"`       // the control plane keeps entries for this time
}

// line is one line of an export. It has exactly one field.
type line struct {
	Export     *Header         `json:"export,omitempty"`
	Key        *Key            `json:"key,omitempty"`
	Entry      json.RawMessage `json:"entry,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
}

// Writer writes an export: JSON lines with the header, the public keys, the entries of each chain in order, and the
// checkpoints in order. The first error of the writer below it is in Err.
type Writer struct {
	w   io.Writer
	Err error
}

// NewWriter returns a Writer that has written the header and the keys.
func NewWriter(w io.Writer, h Header, keys []Key) *Writer {
	h.V = 1
	out := &Writer{w: w}
	out.put(line{Export: &h})
	for _, k := range keys {
		out.put(line{Key: &k})
	}
	return out
}

// Entry writes the JSON of an entry as the control plane sent it: also fields that this version does not know are hashed.
func (w *Writer) Entry(entry json.RawMessage) { w.put(line{Entry: entry}) }

// Checkpoint writes the JSON of a Signed.
func (w *Writer) Checkpoint(c json.RawMessage) { w.put(line{Checkpoint: c}) }

func (w *Writer) put(l line) {
	if w.Err != nil {
		return
	}
	b, err := json.Marshal(l)
	if err == nil {
		_, err = w.w.Write(append(b, '\n'))
	}
	w.Err = err
}

// maxLine is the largest line of an export that Verify reads, in bytes.
const maxLine = 1 << 20

// read calls fn for each line of an export. An error names the line.
func read(r io.Reader, fn func(line) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	n := 0
	for s.Scan() {
		n++
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return fmt.Errorf("line %d is no JSON object: %w", n, err)
		}
		if err := fn(l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return s.Err()
}
