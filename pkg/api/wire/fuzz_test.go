package wire_test

import (
	"bytes"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// A log has what a tool printed: no byte is lost or repeated, and every cut goes on.
func FuzzCutLogMark(f *testing.F) {
	mark := wire.LogMark{}.Encode()
	f.Add(mark)
	f.Add(append(append([]byte("a"), mark...), 'b'))
	f.Add(mark[:len(mark)/2])
	f.Fuzz(func(t *testing.T, log []byte) {
		text, found, rest := wire.CutLogMark(log)
		if !bytes.HasPrefix(log, text) || !bytes.HasSuffix(log, rest) || len(text)+len(rest) > len(log) {
			t.Fatalf("%q is cut into %q and %q", log, text, rest)
		}
		if found == nil && len(text)+len(rest) != len(log) {
			t.Fatalf("%q without a mark loses bytes: %q and %q", log, text, rest)
		}
		if found != nil && len(rest) >= len(log) {
			t.Fatalf("%q is never at its end", log)
		}
	})
}
