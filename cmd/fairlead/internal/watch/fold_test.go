package watch

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The folder removes only sections that succeeded. It keeps the order of all other
// text. The log arrives in pieces; the result is the same for every size of the pieces.
func TestOnlySucceededSectionsAreFolded(t *testing.T) {
	begin, ended := string(wire.LogMark{Section: "init"}.Encode()), string(wire.LogMark{Section: "init", End: true, Providers: 1, Millis: 1250}.Encode())
	failed := string(wire.LogMark{Section: "init", End: true, Failed: true}.Encode())
	for _, c := range []struct{ name, log, want, all string }{
		{"a section that succeeded", "a\n" + begin + "long\n" + ended + "b\n", "a\n[init: 1 provider, 1.2 s]b\n", "a\nlong\nb\n"},
		{"a section that failed", "a\n" + begin + "why\n" + failed + "b\n", "a\nwhy\nb\n", "a\nwhy\nb\n"},
		{"a section without an end, of a job that died in it", "a\n" + begin + "then\n", "a\nthen\n", "a\nthen\n"},
		{"a section inside another, of a job that died in the first", begin + "then\n" + begin + "long\n" + ended, "then\n[init: 1 provider, 1.2 s]", "then\nlong\n"},
		{"an end without a beginning", "a\n" + ended + "b\n", "a\nb\n", "a\nb\n"},
		{"a log without sections", "a\n\x1b", "a\n\x1b", "a\n\x1b"},
		{"a section that is too long to keep", begin + strings.Repeat("x", maxFolded+1) + ended + "b\n", strings.Repeat("x", maxFolded+1) + "b\n", strings.Repeat("x", maxFolded+1) + "b\n"},
	} {
		for _, all := range []bool{false, true} {
			for _, size := range []int{1, 3, 1 << 20} {
				if size < 1<<20 && len(c.log) > maxFolded {
					continue
				}
				var got strings.Builder
				f := folder{all: all, text: func(b []byte) { got.Write(b) }, line: func(s string) { got.WriteString("[" + s + "]") }}
				for rest := c.log; rest != ""; {
					n := min(size, len(rest))
					f.add([]byte(rest[:n]))
					rest = rest[n:]
				}
				f.end()
				want := c.want
				if all {
					want = c.all
				}
				if got.String() != want {
					t.Errorf("%s, all %t, in pieces of %d: %.200q, want %.200q", c.name, all, size, got.String(), want)
				}
			}
		}
	}
}
