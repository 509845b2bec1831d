package view

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// sequences matches the control sequences of ECMA-48 in their 7-bit and 8-bit
// forms: CSI (colours, cursor, clearing), the string sequences OSC, DCS, SOS,
// PM and APC (titles, links, clipboard) with or without their end, and the
// two-character escapes. The rest of an incomplete sequence remains as plain text:
// Clean removes all control characters afterwards.
var sequences = pattern.New(
	"(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]" +
		"|(?:\x1b[\\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[^\x07\x1b\u009c]*(?:\x07|\x1b\\\\|\u009c|$)" +
		"|\x1b[ -/]*[0-~]")

// Clean returns s in a form that cannot control a terminal. It removes control
// sequences and all control characters except tab and newline. It replaces
// characters that reorder text and invalid UTF-8 with U+FFFD.
func Clean(s string) string {
	if isPlain(s) {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = sequences.ReplaceAllString(s, "")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return '\n' // a carriage return would let later text overwrite this line
		case unicode.IsControl(r):
			return -1
		case unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return '\uFFFD'
		}
		return r
	}, s)
}

// isPlain reports whether s is ASCII text without control characters. Most text is,
// and then Clean has nothing to do.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// Cell cleans s and puts it on one line.
func Cell(s string) string {
	s = Clean(s)
	if !strings.ContainsAny(s, "\n\t") {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\t' }), " ")
}

// Cleaner cleans text and writes it to another writer. It keeps an incomplete last
// line, because a control sequence may arrive in pieces.
type Cleaner struct {
	w    io.Writer
	rest []byte
}

// NewCleaner returns a Cleaner that writes to w. The caller must call Flush at the
// end.
func NewCleaner(w io.Writer) *Cleaner { return &Cleaner{w: w} }

// maxHeld is the size of the longest incomplete line that a Cleaner keeps, in bytes.
const maxHeld = 64 << 10

// Write cleans and writes the complete lines, and keeps the rest.
func (c *Cleaner) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	cut := bytes.LastIndexByte(c.rest, '\n') + 1
	if cut == 0 && len(c.rest) > maxHeld {
		cut = len(c.rest)
	}
	if cut == 0 {
		return len(p), nil
	}
	whole := string(c.rest[:cut])
	c.rest = append(c.rest[:0], c.rest[cut:]...)
	if _, err := io.WriteString(c.w, Clean(whole)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes an incomplete last line and adds a newline.
func (c *Cleaner) Flush() error {
	if len(c.rest) == 0 {
		return nil
	}
	line := Clean(string(c.rest)) + "\n"
	c.rest = nil
	_, err := io.WriteString(c.w, line)
	return err
}
