// Package redact masks secrets in a stream of bytes, however the stream is cut
// into writes.
//
// It knows the values of one job and the shape of the product's own tokens. It
// finds a value as it is and in the forms in which tools print it (see addForms),
// also where line breaks part it, with the prefixes that OpenTofu and Terraform put
// before the lines of a provisioner.
//
// It does not find
//   - a value of less than 4 bytes, true, false, null, and the keys of a map;
//   - a value with other bytes inside, such as ANSI codes, NUL and zero-width
//     characters, or with lines of others between its parts;
//   - a value that was encoded twice (JSON within JSON is found), reversed, put in
//     upper case, hashed or encrypted;
//   - a number in another notation.
package redact

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// Mask replaces each secret.
const Mask = "(sensitive)"

// The shortest texts that are masked. Shorter ones are found in any log by
// chance: to mask every "1" or "on" makes the log useless, and where the masks
// stand tells the value anyway.
const (
	minValue = 4 // bytes of a whole value
	minLine  = 6 // bytes of one line of a longer value; "}" and "EOF" are no secrets
)

// Set is what to mask. Safe for concurrent use.
type Set struct {
	trie atomic.Pointer[trie]

	mu     sync.Mutex
	values []json.RawMessage
}

// trie is what a Set knows at a time. It does not change once it is made.
type trie struct {
	top    *edge          // to the root; it has no text
	first  [256]bool      // bytes with which a secret can begin: nearly no byte of a log does
	second [256][4]uint64 // of each such byte, a bit for each byte that can follow it
}

// begins says whether a secret can begin with b.
func (s *trie) begins(b []byte) bool {
	return s.first[b[0]] && (len(b) == 1 || s.second[b[0]][b[1]>>6]>>(b[1]&63)&1 == 1)
}

// pair notes that a secret can begin with a and b.
func (s *trie) pair(a, b byte) {
	for c := range 256 {
		if c := byte(c); c == b || b == ' ' && isSpace(c) {
			s.first[a] = true
			s.second[a][c>>6] |= 1 << (c & 63)
		}
	}
}

// node is where secrets part, or one ends. A run of white space, in a value as
// in the text, is the one byte ' ': tools wrap lines at spaces.
type node struct {
	next []*edge // no two begin alike
	end  bool
}

// edge leads to a node by all bytes that the secrets beyond it have in common. A
// node for each byte took thousands of times the memory of a long secret.
type edge struct {
	text string // not empty
	to   *node
}

// by returns the edge that begins with c, or nil.
func (n *node) by(c byte) *edge {
	for _, e := range n.next {
		if e.text[0] == c {
			return e
		}
	}
	return nil
}

// New returns the Set for values: JSON, as the job spec holds them. Strings are
// taken wherever they are in a value; so are numbers; true, false and null are
// in every log and tell nothing.
func New(values ...json.RawMessage) *Set {
	s := &Set{values: values}
	s.trie.Store(newTrie(values))
	return s
}

// Add adds a text that is a secret from now on, such as a credential that the
// job has just been given.
func (s *Set) Add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, err := json.Marshal(text)
	if err != nil {
		raw = json.RawMessage(text)
	}
	s.values = append(s.values[:len(s.values):len(s.values)], raw)
	s.trie.Store(newTrie(s.values))
}

func newTrie(values []json.RawMessage) *trie {
	s := &trie{top: &edge{to: &node{}}}
	for _, v := range values {
		s.addJSON(v)
	}
	s.pair('f', 'l') // a token
	for _, e := range s.top.to.next {
		if len(e.text) > 1 {
			s.pair(e.text[0], e.text[1])
			continue
		}
		for _, f := range e.to.next {
			s.pair(e.text[0], f.text[0])
		}
	}
	return s
}

func (s *trie) addJSON(raw json.RawMessage) {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		s.addValue(string(raw)) // not JSON: all of it is the secret
		return
	}
	s.addAny(v)
}

func (s *trie) addAny(v any) {
	switch v := v.(type) {
	case string:
		s.addValue(v)
	case json.Number:
		s.addValue(v.String())
	case []any:
		for _, e := range v {
			s.addAny(e)
		}
	case map[string]any:
		for _, e := range v {
			s.addAny(e)
		}
	}
}

func (s *trie) addValue(v string) {
	v = strings.TrimSpace(v)
	s.addForms(v, minValue)
	if strings.ContainsAny(v, "\r\n") {
		for line := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == '\n' || r == '\r' }) {
			s.addForms(strings.TrimSpace(line), minLine)
		}
	}
}

func (s *trie) add(text string) {
	if len(text) < minValue {
		return
	}
	n := s.top.to
	for text = oneSpace(text); text != ""; {
		e := n.by(text[0])
		if e == nil {
			e = &edge{text, &node{}}
			n.next = append(n.next, e)
		}
		same := 0
		for same < min(len(text), len(e.text)) && text[same] == e.text[same] {
			same++
		}
		if same < len(e.text) {
			e.text, e.to = e.text[:same], &node{next: []*edge{{e.text[same:], e.to}}}
		}
		n, text = e.to, text[same:]
	}
	n.end = true
}

// oneSpace returns text with each run of white space as one ' '.
func oneSpace(text string) string {
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if isSpace(c) {
			if c = ' '; i > 0 && isSpace(text[i-1]) {
				continue
			}
		}
		b = append(b, c)
	}
	return string(b)
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// longest returns the end of the longest secret that begins at b[0], or 0.
// more says that b ends before that can be known.
// With final set nothing follows b.
func (s *trie) longest(b []byte, final bool) (end int, more bool) {
	end, more = token(b, final)
	w := walk{b: b, end: end, more: more}
	w.from(place{e: s.top}, 0)
	return w.end, w.more
}

// Tokens of the product are "fl", a letter for their kind, "_", and at least
// minToken characters.
const minToken = 16

// maxToken is where a token ends for us at the latest, in bytes: what is longer
// than any real one must not hold up the stream.
const maxToken = 512

// token returns the end of the token that begins at b[0], or 0. more says that b
// ends before that can be known. With final set the token ends with b.
func token(b []byte, final bool) (end int, more bool) {
	for i, c := range b {
		switch {
		case i == 0 && c == 'f', i == 1 && c == 'l', i == 2 && c >= 'a' && c <= 'z', i == 3 && c == '_':
		case i > 3 && i < maxToken && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '-' || c == '.'):
		case i >= 4+minToken:
			return i, false
		default:
			return 0, false
		}
	}
	if final && len(b) >= 4+minToken {
		return len(b), false
	}
	return 0, len(b) > 0
}

// String masks the secrets in a whole text.
func (s *Set) String(text string) string {
	out, _ := s.trie.Load().mask(nil, []byte(text), true)
	return string(out)
}

// mask appends to out what of in is decided, secrets masked, and returns what
// must wait for the bytes that follow. With final set nothing waits.
func (s *trie) mask(out, in []byte, final bool) (masked, rest []byte) {
	for i := 0; i < len(in); {
		if j := i; !s.begins(in[i:]) {
			for i < len(in) && !s.begins(in[i:]) {
				i++
			}
			out = append(out, in[j:i]...)
			continue
		}
		end, more := s.match(in[i:], final)
		if more && !final {
			return out, in[i:]
		}
		if end == 0 {
			out = append(out, in[i])
			i++
			continue
		}
		out = append(out, Mask...)
		i += end
	}
	return out, nil
}

// match is longest, extended by the secrets that begin within the match and
// reach beyond it: overlapping secrets must not leave each other's ends.
func (s *trie) match(b []byte, final bool) (end int, more bool) {
	end, more = s.longest(b, final)
	if more && !final {
		return end, true
	}
	for k := 1; k < end; k++ {
		if !s.begins(b[k:]) {
			continue
		}
		e, m := s.longest(b[k:], final)
		if m && !final {
			return end, true
		}
		end = max(end, k+e)
	}
	return end, false
}

// maxHeld is the most bytes that wait for those that follow, so that a secret
// of that size (no plausible one is larger) cannot hold the log in memory.
const maxHeld = 1 << 20

// Writer masks what is written through it. Safe for concurrent use: a tool's
// two outputs are copied to it by a goroutine each.
type Writer struct {
	set *Set
	w   io.Writer

	mu   sync.Mutex
	held []byte
	out  []byte
}

// NewWriter returns a Writer to w. Close it, or its last bytes are lost.
func (s *Set) NewWriter(w io.Writer) *Writer { return &Writer{set: s, w: w} }

// Write passes on what of p, and of what was held back before, can be decided.
func (r *Writer) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, p...)
	return len(p), r.pass(len(r.held) > maxHeld)
}

// Close passes on what was held back. It does not close what is beneath.
func (r *Writer) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pass(true)
}

func (r *Writer) pass(final bool) error {
	out, rest := r.set.trie.Load().mask(r.out[:0], r.held, final)
	r.out = out
	r.held = append(r.held[:0], rest...)
	if len(out) == 0 {
		return nil
	}
	_, err := r.w.Write(out)
	return err
}
