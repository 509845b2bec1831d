package view_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
)

func TestCleanKeepsTextAndRemovesControls(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain text":                         {"Plan: 2 to add\n\tok", "Plan: 2 to add\n\tok"},
		"text of any language":               {"größer → 大きい", "größer → 大きい"},
		"colours":                            {"\x1b[1;31mred\x1b[0m", "red"},
		"8-bit colours":                      {"\u009b31mred", "red"},
		"clears the screen":                  {"a\x1b[2Jb", "ab"},
		"sets the title":                     {"a\x1b]0;owned\x07b", "ab"},
		"a link, ended by ST":                {"\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"},
		"writes the clipboard":               {"\x1b]52;c;aGk=\x07", ""},
		"an unfinished title loses its text": {"a\x1b]0;owned", "a"},
		"an unfinished colour becomes text":  {"a\x1b[31", "a31"},
		"asks the terminal to answer":        {"\x1bP+q544e\x1b\\\x1b[6n\x05", ""},
		"overwrites earlier text":            {"safe\rfake", "safe\nfake"},
		"Windows line ends":                  {"a\r\nb\r\n", "a\nb\n"},
		"backspaces":                         {"safe\b\b\b\bfake", "safefake"},
		"reverses the text direction":        {"a\u202eb", "a\uFFFDb"},
		"invalid UTF-8":                      {"a\xff\xfeb", "a\uFFFDb"},
		"an escape inside an escape":         {"\x1b\x1b[2J[2J", "[2J"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := view.Clean(tc.in); got != tc.want {
				t.Errorf("Clean(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

// harmless returns false if s could control a terminal, with the first control
// character that it holds.
func harmless(s string) (rune, bool) {
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return r, false
		}
	}
	return 0, utf8.ValidString(s)
}

func FuzzCleanIsHarmless(f *testing.F) {
	f.Add("a\x1b]0;t\x07b\x1b[31m\u009b2J\r\xff")
	f.Add("\x1b\x1b[\x1b[[31mmm")
	f.Fuzz(func(t *testing.T, s string) {
		got := view.Clean(s)
		if r, ok := harmless(got); !ok {
			t.Errorf("Clean(%q) = %q, which holds %U", s, got, r)
		}
		if again := view.Clean(got); again != got {
			t.Errorf("Clean(%q) = %q, but cleaned again %q", s, got, again)
		}
		var out bytes.Buffer
		c := view.NewCleaner(&out)
		for i := range len(s) { // the smallest pieces
			if _, err := c.Write([]byte{s[i]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if r, ok := harmless(out.String()); !ok {
			t.Errorf("in pieces, %q became %q, which holds %U", s, out.String(), r)
		}
		if strings.ContainsAny(view.Cell(s), "\n\t") {
			t.Errorf("Cell(%q) has more than one line", s)
		}
	})
}
