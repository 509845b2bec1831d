package wire_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The log arrives in two pieces, cut at every position. Bytes that only resemble
// a mark stay text.
func TestLogMarkIsFoundAtAnyCut(t *testing.T) {
	mark := wire.LogMark{Section: "init", End: true, Providers: 3, Modules: 1, Millis: 2100}
	for _, c := range []struct{ name, before, after string }{
		{"alone", "", ""},
		{"between lines", "one\n", "two\n"},
		{"after a false begin", "a\x1b_FLno mark\x1b\\b\x1b", "\x1b_F"},
	} {
		log := c.before + string(mark.Encode()) + c.after
		for cut := range len(log) {
			var got string
			var found []wire.LogMark
			var rest []byte
			for _, piece := range []string{log[:cut], log[cut:]} {
				rest = append(rest, piece...)
				for {
					text, m, left := wire.CutLogMark(rest)
					got += string(text)
					rest = left
					if m == nil {
						break
					}
					found = append(found, *m)
				}
			}
			got += string(rest)
			if got != c.before+c.after || len(found) != 1 || found[0] != mark {
				t.Fatalf("%s, cut at %d: text %q, marks %+v", c.name, cut, got, found)
			}
		}
	}
}
