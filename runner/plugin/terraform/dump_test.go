package terraform

import (
	"bytes"
	"strings"
	"testing"
)

func TestPrintedStateDoesNotReachTheLog(t *testing.T) {
	const compact = `{"version":4,"serial":1,"outputs":{"p":"hunter22"}}` + "\n"
	const indented = "{\n  \"version\": 4,\n  \"outputs\": {\n    \"p\": \"hunter22\"\n  }\n}\n"
	for name, tc := range map[string]struct{ in, log, dump string }{
		"on one line":                        {"before\n" + compact + "\nError: x\n", "before\n" + stateRemoved + "\nError: x\n", compact},
		"on many lines":                      {"before\n" + indented + "\nError: x\n", "before\n" + stateRemoved + "\nError: x\n", indented},
		"without other output":               {compact, stateRemoved, compact},
		"torn: it may still hold secrets":    {"before\n" + compact[:30], "before\n" + stateRemoved, compact[:30]},
		"torn, on many lines":                {indented[:30], stateRemoved, indented[:30]},
		"other braces":                       {"{\n}\n{\"a\":1}\n{ \"version\": 4 }\nx {\"version\":4}\n{", "{\n}\n{\"a\":1}\n{ \"version\": 4 }\nx {\"version\":4}\n{", ""},
		"printed twice: the last one counts": {strings.Replace(compact, "1", "0", 1) + compact, stateRemoved + stateRemoved, compact},
		"nothing":                            {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= max(1, len(tc.in)); size++ {
				var log bytes.Buffer
				c := &dumpCatcher{w: &log}
				for in := tc.in; in != ""; {
					n := min(size, len(in))
					if k, err := c.Write([]byte(in[:n])); k != n || err != nil {
						t.Fatalf("wrote %d of %d: %v", k, n, err)
					}
					in = in[n:]
				}
				dump := string(c.end())
				if log.String() != tc.log || dump != tc.dump {
					t.Fatalf("in pieces of %d: the log is %q, the state %q", size, log.String(), dump)
				}
			}
		})
	}
}

func TestTooLargePrintedStateIsDropped(t *testing.T) {
	for name, tc := range map[string]struct{ begin, line, end string }{
		"on one line":   {`{"version":4,`, strings.Repeat(" ", 1<<20), "}\n"},
		"on many lines": {"{\n  \"version\": 4,\n", strings.Repeat(" ", 1<<20) + "\n", "}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			c := &dumpCatcher{w: &log}
			c.Write([]byte(tc.begin))
			for range maxDump>>20 + 10 {
				c.Write([]byte(tc.line))
			}
			c.Write([]byte(tc.end + "after\n"))
			if dump := c.end(); dump != nil || log.String() != stateRemoved+"after\n" {
				t.Errorf("%d bytes caught, %d bytes logged", len(dump), log.Len())
			}
		})
	}
}
