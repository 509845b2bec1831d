package watch

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
)

// lines writes whole lines, each with the name of its component. It is safe for
// concurrent use.
type lines struct {
	mu    sync.Mutex
	out   io.Writer
	style view.Style
	width int            // width of the widest name
	index map[string]int // index of each name, for its colour
}

func newLines(out io.Writer, style view.Style, names []string) *lines {
	l := &lines{out: out, style: style, index: map[string]int{}}
	for i, name := range names {
		l.index[name] = i
		l.width = max(l.width, utf8.RuneCountInString(name))
	}
	return l
}

// write writes a line: the name of a component, a sign, and text. The caller must clean
// the text with view.Clean or view.Cell. If the line is not about a component, name is
// "".
func (l *lines) write(name, sign, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	prefix := ""
	if name != "" {
		prefix = l.style.Nth(l.index[name], fmt.Sprintf("%-*s", l.width, view.Cell(name))) + " "
	}
	line := prefix + sign
	if text != "" {
		line += " " + text
	}
	fmt.Fprintln(l.out, line) // an error is ignored: a closed output must not stop a deployment
}

// log writes a line of a job's log.
func (l *lines) log(name, text string) {
	l.write(name, l.style.Nth(l.index[name], "│"), text)
}

// maxLine is the maximum size of a shown line of a log, in bytes. The splitter breaks
// longer lines.
const maxLine = 16 << 10

// splitter splits a log, which arrives in pieces of any size, into lines.
type splitter struct {
	rest []byte
	emit func(line string)
}

func (s *splitter) add(data []byte) {
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i >= 0 {
			s.rest = append(s.rest, data[:i]...)
			data = data[i+1:]
			s.flushLine()
			continue
		}
		s.rest = append(s.rest, data...)
		data = nil
	}
	for len(s.rest) > maxLine {
		cut := maxLine
		for cut > maxLine-utf8.UTFMax && !utf8.RuneStart(s.rest[cut]) {
			cut--
		}
		s.emit(string(s.rest[:cut]))
		s.rest = append(s.rest[:0], s.rest[cut:]...)
	}
}

// end emits a last line without a newline.
func (s *splitter) end() {
	if len(s.rest) > 0 {
		s.flushLine()
	}
}

func (s *splitter) flushLine() {
	s.emit(string(s.rest))
	s.rest = s.rest[:0]
}
