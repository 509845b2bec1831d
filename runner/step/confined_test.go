package step

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A variable gives tools access to the named path, not to its parent: /bin is a link on most machines, and its parent is
// the root folder.
func TestVariableOpensOnlyTheNamedPaths(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.MkdirAll(at("mounted/..2026"), 0o700), os.WriteFile(at("mounted/..2026/token"), nil, 0o600), os.WriteFile(at("file"), nil, 0o600),
		os.Symlink("..2026/token", at("mounted/token")), os.Symlink("mounted", at("linked")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for value, want := range map[string][]string{
		"":                              nil,
		"eu-central-1":                  nil,
		"relative/path":                 nil,
		"/":                             nil,
		at("file"):                      {at("file")},
		at("absent"):                    {at("absent")},
		at("file") + ":" + at("absent"): {at("file"), at("absent")},
		at("mounted/token"):             {at("mounted/token"), at("mounted")}, // the next token is another file
		at("linked"):                    {at("linked")},
		"https://example.com:8443/a:" + at("file"): {at("file")},
	} {
		if got := pathsIn(value); !slices.Equal(got, want) {
			t.Errorf("%q names %q, want %q", value, got, want)
		}
	}
}
