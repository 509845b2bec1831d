package redact

import (
	"bytes"
	"strings"
)

// The most bytes that may part a secret. So much of the stream waits until it is
// known whether the secret goes on behind them.
const (
	// minPart is how much of a secret stands before a line break that parts it. With
	// less, the end of nearly every line would wait for the line after it.
	minPart   = 4
	maxIndent = 256  // indentation of a line
	maxPrefix = 1024 // prefix of a provisioner's line
)

// place is a place in the trie: behind the first n bytes of an edge.
type place struct {
	e *edge
	n int
}

// step returns the place behind c, if a secret goes on with c.
func (p place) step(c byte) (place, bool) {
	if p.n < len(p.e.text) {
		return place{p.e, p.n + 1}, p.e.text[p.n] == c
	}
	e := p.e.to.by(c)
	return place{e, 1}, e != nil
}

// walk finds the secrets that b begins with.
type walk struct {
	b    []byte
	end  int  // of the longest secret, or 0
	more bool // b ends before the longest is known
}

// from follows the secrets from p and the text from i.
//
// White space in the text is the ' ' of a secret, or it is a line break that parts
// the secret and is skipped. The prefix of a provisioner may belong to it. The walk
// goes each way that is possible. It parts only where the trie does, or where a
// secret has such a prefix in itself, so the forms of the secrets bound the number
// of ways.
func (w *walk) from(p place, i int) {
	for {
		for p.n < len(p.e.text) && i < len(w.b) && p.e.text[p.n] == w.b[i] && w.b[i] != ' ' {
			p.n++
			i++
		}
		if p.n == len(p.e.text) {
			if p.e.to.end {
				w.end = max(w.end, i)
			}
			if len(p.e.to.next) == 0 {
				return
			}
		}
		if i == len(w.b) {
			w.more = true
			return
		}
		if !isSpace(w.b[i]) {
			var ok bool
			if p, ok = p.step(w.b[i]); !ok {
				return
			}
			i++
			continue
		}
		var ways [4]struct {
			p place
			i int
		}
		n := 0
		behind, space := p.step(' ')
		for _, g := range w.gaps(i, space) {
			if g.end == 0 {
				continue
			}
			if space {
				ways[n].p, ways[n].i = behind, g.end
				n++
			}
			if q, ok := p.step(w.b[g.end]); ok && g.skip {
				ways[n].p, ways[n].i = q, g.end+1
				n++
			}
		}
		if n == 0 {
			return
		}
		for _, way := range ways[:n-1] {
			w.from(way.p, way.i)
		}
		p, i = ways[n-1].p, ways[n-1].i
	}
}

// gap is white space in the text, and the prefix of a provisioner if that follows
// a line break.
type gap struct {
	end  int  // where the text goes on, not with white space; 0 is no gap
	skip bool // it is one line break at most, within a secret
}

// gaps returns the gaps that begin with the white space at i: without a prefix, and
// with it. With space set a secret goes on with white space.
func (w *walk) gaps(i int, space bool) (all [2]gap) {
	end := spaces(w.b, i)
	skip := i >= minPart && lineBreak(w.b[i:end], end == len(w.b))
	if !space && !skip {
		return all
	}
	if end == len(w.b) {
		w.more = true
		return all
	}
	all[0] = gap{end, skip}
	if bytes.IndexByte(w.b[i:end], '\n') < 0 {
		return all
	}
	n, more := prefix(w.b[end:])
	if more {
		w.more = true
	}
	if n == 0 {
		return all
	}
	from := end + n
	end = spaces(w.b, from)
	skip = skip && indentation(w.b[from:end])
	switch {
	case !space && !skip:
	case end == len(w.b):
		w.more = true
	default:
		all[1] = gap{end, skip}
	}
	return all
}

// spaces returns the end of the white space from i.
func spaces(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// lineBreak says whether white space is one line break and indentation. With open
// set more of it may follow.
func lineBreak(b []byte, open bool) bool {
	b = bytes.TrimPrefix(b, []byte{'\r'})
	if len(b) == 0 {
		return open
	}
	return b[0] == '\n' && indentation(b[1:])
}

func indentation(b []byte) bool {
	return len(b) <= maxIndent && bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0
}

// prefix returns the length of what OpenTofu and Terraform put before each line
// that a provisioner prints, such as
//
//	module.m["a key"].terraform_data.r[0] (local-exec):
//
// with the space at its end, or 0. They also end a line where the provisioner
// pauses, so two writes of it are two such lines. more says that b ends before it
// can be known.
func prefix(b []byte) (n int, more bool) {
	quoted := false
	for i := 0; i < min(len(b), maxPrefix); i++ {
		switch c := b[i]; {
		case c == '\n':
			return 0, false
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ' ':
			for _, kind := range []string{" (local-exec): ", " (remote-exec): "} {
				rest := string(b[i:min(len(b), i+len(kind))])
				if rest == kind {
					return i + len(kind), false
				}
				more = more || strings.HasPrefix(kind, rest) // b ends within it
			}
			return 0, more && i > 0
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c >= 0x80,
			c == '_', c == '-', c == '.', c == '[', c == ']':
		default:
			return 0, false
		}
	}
	return 0, len(b) < maxPrefix
}
