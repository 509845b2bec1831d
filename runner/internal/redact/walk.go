package redact

import (
	"bytes"
	"strings"
)

// Limits of the bytes that may split a secret. The stream can wait for as many bytes, to find out
// whether the secret continues after them.
const (
	// minPart is the smallest number of a secret's bytes before a line break that splits it. With a
	// smaller number, the end of nearly every line would wait for the next line.
	minPart   = 4
	maxIndent = 256  // bytes of a line's indentation
	maxPrefix = 1024 // bytes of the prefix of a provisioner's line
)

// place is a position in the trie: after the first n bytes of an edge.
type place struct {
	e *edge
	n int
}

// step returns the place after c, and whether a secret continues with c.
func (p place) step(c byte) (place, bool) {
	if p.n < len(p.e.text) {
		return place{p.e, p.n + 1}, p.e.text[p.n] == c
	}
	e := p.e.to.by(c)
	return place{e, 1}, e != nil
}

// walk finds the longest secret that begins at b[0].
type walk struct {
	b    []byte
	end  int  // end of the longest secret, or 0
	more bool // the result depends on bytes after b
}

// from compares the secrets after p with the text after i.
//
// White space in the text can match the ' ' of a secret. It can also be a line break that splits the
// secret, which from skips. The prefix of a provisioner's line may follow the line break. The method
// from tries all possibilities. The forms of the secrets bound the number of possibilities: two
// possibilities differ only where the trie branches, or where a secret itself contains such a prefix.
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

// gap is white space in the text, with the prefix of a provisioner's line if one follows a line break.
type gap struct {
	end  int  // index of the next byte that is not white space; 0: no gap
	skip bool // the gap may split a secret: it is at most one line break, after minPart bytes
}

// gaps returns the gaps that begin with the white space at i: a gap without a prefix, and a gap with a
// prefix. The parameter space is true if a secret continues with white space.
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

// spaces returns the end of the white space that begins at i.
func spaces(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// lineBreak reports whether the white space b is one line break with indentation. If open is true, more
// white space may follow b. In this case an empty b, or a b that is only a carriage return, may still
// become a line break, and lineBreak returns true.
func lineBreak(b []byte, open bool) bool {
	b = bytes.TrimPrefix(b, []byte{'\r'})
	if len(b) == 0 {
		return open
	}
	return b[0] == '\n' && indentation(b[1:])
}

// indentation reports whether the white space b is valid as the indentation of one line.
func indentation(b []byte) bool {
	return len(b) <= maxIndent && bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0
}

// prefix returns the length of the prefix that OpenTofu and Terraform print before each line of a
// provisioner, or 0 if b does not begin with such a prefix. An example is
//
//	module.m["a key"].terraform_data.r[0] (local-exec):
//
// including the space at its end. The tools also end a line when the provisioner pauses, so two writes
// of a provisioner become two lines with prefixes. more is true if the result depends on bytes
// after b.
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
				more = more || strings.HasPrefix(kind, rest) // b ends within the suffix
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
