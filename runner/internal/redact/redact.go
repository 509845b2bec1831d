// Package redact masks secrets in a stream of bytes. The result does not depend on how the stream is
// split into writes.
//
// It knows the secret values of one job and the format of Fairlead's own tokens. It finds an unchanged
// value, and a value in the encoded forms in which tools print it (see addForms). It also finds a value
// that is split by line breaks, even if each line begins with the prefix that OpenTofu and Terraform
// print before the lines of a provisioner.
//
// It does not find
//   - a value of less than 4 bytes, true, false, null, and the keys of a map;
//   - a value with other bytes inside, such as ANSI codes, NUL and zero-width characters, or with other
//     lines between its parts;
//   - a value that is encoded twice (except JSON in JSON), reversed, in upper case, hashed or encrypted;
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

// The lengths of the shortest texts that are masked. Every log contains shorter texts by chance. If each
// "1" or "on" were masked, the log would be useless, and the places of the masks would still reveal the
// value.
const (
	minValue = 4 // bytes of a whole value
	minLine  = 6 // bytes of one line of a longer value; lines like "}" and "EOF" are no secrets
)

// Set holds the secrets to mask. Safe for concurrent use.
type Set struct {
	trie atomic.Pointer[trie]

	mu     sync.Mutex
	values []json.RawMessage
}

// trie holds all forms of a Set's secrets. It is immutable after newTrie.
type trie struct {
	top    *edge           // leads to the root; its text is empty
	first  [256]bool       // whether a secret can begin with the byte; skips most bytes of a log quickly
	second [256][4]uint64  // for each first byte, a bit for each byte that can follow it
	third  [1 << 10]uint64 // a bit for each hash of the first three bytes: with many secrets, most pairs of letters begin one
}

// begins reports whether a secret can begin with the first three bytes of b.
func (s *trie) begins(b []byte) bool {
	if !s.first[b[0]] || len(b) > 1 && s.second[b[0]][b[1]>>6]>>(b[1]&63)&1 == 0 {
		return false
	}
	if len(b) < 3 {
		return true
	}
	h := hash(b[0], b[1], b[2])
	return s.third[h>>6]>>(h&63)&1 == 1
}

// hash returns a hash of three bytes, of 16 bits.
func hash(a, b, c byte) uint32 {
	return (uint32(a)<<16 | uint32(b)<<8 | uint32(c)) * 0x9E3779B1 >> 16
}

// triple records that a secret can begin with the first three bytes of a text with single spaces. If one of them is a space, which
// matches any white space, the third byte can be any.
func (s *trie) triple(text string) {
	switch strings.IndexByte(text[:3], ' ') {
	case -1:
		h := hash(text[0], text[1], text[2])
		s.third[h>>6] |= 1 << (h & 63)
	case 0: // no form begins with a space, but if one did, nothing may be overlooked
		for i := range s.third {
			s.third[i] = ^uint64(0)
		}
	case 1:
		for _, space := range " \n\t\r" {
			s.anyThird(text[0], byte(space))
		}
	default:
		s.anyThird(text[0], text[1])
	}
}

func (s *trie) anyThird(a, b byte) {
	for c := range 256 {
		h := hash(a, b, byte(c))
		s.third[h>>6] |= 1 << (h & 63)
	}
}

// pair records that a secret can begin with the bytes a and b.
func (s *trie) pair(a, b byte) {
	for c := range 256 {
		if c := byte(c); c == b || b == ' ' && isSpace(c) {
			s.first[a] = true
			s.second[a][c>>6] |= 1 << (c & 63)
		}
	}
}

// node is a point of the trie where secrets differ, or where a secret ends. In the trie, each run of
// white space is one ' '. This ' ' matches any run of white space in the text, because tools wrap lines
// at spaces.
type node struct {
	next []*edge // each begins with a different byte
	end  bool    // a secret ends here
}

// edge leads to a node. Its text holds the next bytes that all secrets below the node have in common. A
// trie with one node for each byte would need thousands of times the size of a long secret.
type edge struct {
	text string // not empty
	to   *node
}

// by returns the edge that begins with c, or nil if no edge begins with c.
func (n *node) by(c byte) *edge {
	for _, e := range n.next {
		if e.text[0] == c {
			return e
		}
	}
	return nil
}

// New returns a Set of the values, which are JSON as in the job spec. All strings and numbers inside a
// value are secrets. true, false and null are no secrets: every log contains them, and they reveal
// nothing.
func New(values ...json.RawMessage) *Set {
	s := &Set{values: values}
	s.trie.Store(newTrie(values))
	return s
}

// Add adds a secret text while the job runs, such as a new credential of the job. After Add has
// returned, all Writers mask the text.
func (s *Set) Add(text string) {
	raw, err := json.Marshal(text)
	if err != nil {
		raw = json.RawMessage(text)
	}
	s.AddJSON(raw)
}

// AddJSON is Add for values as New takes them.
func (s *Set) AddJSON(values ...json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values[:len(s.values):len(s.values)], values...)
	s.trie.Store(newTrie(s.values))
}

func newTrie(values []json.RawMessage) *trie {
	s := &trie{top: &edge{to: &node{}}}
	for _, v := range values {
		s.addJSON(v)
	}
	s.pair('f', 'l') // Fairlead's own tokens
	s.anyThird('f', 'l')
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
		s.addValue(string(raw)) // not JSON: the whole text is the secret
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

// addValue adds a value, and each line of a value with several lines.
func (s *trie) addValue(v string) {
	v = strings.TrimSpace(v)
	s.addForms(v, minValue)
	if strings.ContainsAny(v, "\r\n") {
		for line := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == '\n' || r == '\r' }) {
			s.addForms(strings.TrimSpace(line), minLine)
		}
	}
}

// add adds a text in exactly this form.
func (s *trie) add(text string) {
	if len(text) < minValue {
		return
	}
	n := s.top.to
	text = oneSpace(text)
	s.triple(text + "   ") // white space can shorten the text
	for text != "" {
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

// oneSpace returns text with each run of white space replaced by one ' '.
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

// longest returns the end of the longest secret that begins at b[0], or 0 if no secret begins there. more
// is true if the result depends on bytes after b. If final is true, no bytes follow b.
func (s *trie) longest(b []byte, final bool) (end int, more bool) {
	end, more = token(b, final)
	w := walk{b: b, end: end, more: more}
	w.from(place{e: s.top}, 0)
	return w.end, w.more
}

// minToken is the smallest number of characters after the prefix of a Fairlead token. The prefix is "fl",
// a letter for the token's kind, and "_".
const minToken = 16

// maxToken is the largest length of a token in bytes. Every real token is shorter. The limit exists
// because a longer text must not delay the stream.
const maxToken = 512

// token returns the end of the Fairlead token that begins at b[0], or 0 if no token begins there. more
// is true if the result depends on bytes after b. If final is true, no bytes follow b.
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

// String returns a complete text with its secrets masked.
func (s *Set) String(text string) string {
	out, _ := s.trie.Load().mask(nil, []byte(text), true)
	return string(out)
}

// mask masks the secrets in the bytes in, and appends the result to out. rest is the end of in whose
// result depends on later bytes. If final is true, no bytes follow in, and rest is empty.
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

// match is like longest, but if another secret overlaps the match and ends later, match returns the end
// of that secret. Otherwise the end of the overlapping secret would stay visible.
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

// maxHeld is the largest number of bytes that a Writer holds back until it knows the next bytes. It
// bounds the memory. No plausible secret is larger.
const maxHeld = 1 << 20

// Writer masks the secrets in its writes and passes the result on. Safe for concurrent use, because two
// goroutines copy a tool's stdout and stderr to it.
type Writer struct {
	set *Set
	w   io.Writer

	mu   sync.Mutex
	held []byte
	out  []byte
}

// NewWriter returns a Writer to w. The caller must call Close, otherwise the last bytes are lost.
func (s *Set) NewWriter(w io.Writer) *Writer { return &Writer{set: s, w: w} }

// Write passes on the masked bytes. If the end of the bytes may be the beginning of a secret, Write holds
// this end back until later writes or Close.
func (r *Writer) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, p...)
	return len(p), r.pass(len(r.held) > maxHeld)
}

// Close passes on the bytes that were held back. It does not close the underlying writer.
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
