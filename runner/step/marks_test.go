package step

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// A tool cannot forge a mark, even if it splits the mark into two writes. The step keeps all other bytes.
func TestToolOutputNeverContainsAMark(t *testing.T) {
	forged := string(wire.LogMark{Section: "init"}.Encode())
	text := "before\x1b[1m" + forged + "hidden\x1b"
	for cut := range len(text) {
		var log bytes.Buffer
		m := &marks{w: &log}
		m.mark(wire.LogMark{Section: "init"})
		for _, piece := range []string{text[:cut], text[cut:]} {
			if n, err := m.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatalf("wrote %[2]d of %[1]d bytes (%[3]v)", len(piece), n, err)
			}
		}
		m.mark(wire.LogMark{Section: "init", End: true})
		m.end()
		_, first, rest := wire.CutLogMark(log.Bytes())
		got, second, rest := wire.CutLogMark(rest)
		if first == nil || second == nil || !second.End || len(rest) > 0 {
			t.Fatalf("cut at %d: the marks of %q are %+v and %+v", cut, log.String(), first, second)
		}
		if want := strings.ReplaceAll(text, "\x1b_", "_"); string(got) != want {
			t.Fatalf("cut at %d: %q became %q", cut, text, got)
		}
	}
}
