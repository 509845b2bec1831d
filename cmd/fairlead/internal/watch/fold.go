package watch

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// maxFolded is the maximum size of a folded section of a log, in bytes. There is a
// maximum because the folder keeps a section in memory until the section ends.
const maxFolded = 1 << 20

// folder passes on a log and folds the log's sections: it replaces a section that
// succeeded with one line. It passes on the full text of a section that failed, has no
// end, or is larger than maxFolded. It is not safe for concurrent use.
type folder struct {
	all  bool         // fold nothing: pass on the text of all sections, without the marks
	text func([]byte) // receives the log
	line func(string) // receives the line of a folded section

	rest   []byte // end of the received data, which may be the beginning of a mark
	held   []byte // text of the current section
	inside bool   // the folder is in a section that may be folded
}

func (f *folder) add(data []byte) {
	f.rest = append(f.rest, data...)
	for {
		text, mark, rest := wire.CutLogMark(f.rest)
		f.pass(text)
		f.rest = rest
		if mark == nil {
			f.rest = append([]byte(nil), rest...)
			return
		}
		f.mark(*mark)
	}
}

func (f *folder) pass(text []byte) {
	if !f.inside {
		if len(text) > 0 {
			f.text(text)
		}
		return
	}
	if f.held = append(f.held, text...); len(f.held) > maxFolded {
		f.unfold()
	}
}

func (f *folder) mark(m wire.LogMark) {
	if !m.End {
		f.unfold()
		f.inside = !f.all
		return
	}
	if f.inside && !m.Failed {
		f.held, f.inside = nil, false
		f.line(summary(m))
		return
	}
	f.unfold()
}

// unfold passes on the text of the current section, and leaves the section.
func (f *folder) unfold() {
	held := f.held
	f.held, f.inside = nil, false
	if len(held) > 0 {
		f.text(held)
	}
}

// end passes on the remaining text at the end of a log.
func (f *folder) end() {
	f.unfold()
	if len(f.rest) > 0 {
		f.text(f.rest)
	}
	f.rest = nil
}

// summary returns the line of a folded section.
func summary(m wire.LogMark) string {
	took := time.Duration(m.Millis) * time.Millisecond
	what := "nothing to install"
	switch {
	case m.Providers > 0 && m.Modules > 0:
		what = counted(m.Providers, "provider") + ", " + counted(m.Modules, "module")
	case m.Providers > 0:
		what = counted(m.Providers, "provider")
	case m.Modules > 0:
		what = counted(m.Modules, "module")
	}
	return fmt.Sprintf("%s: %s, %.1f s", m.Section, what, took.Seconds())
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
