package artifact_test

import (
	"os"
	"path/filepath"
	"testing"
)

// Pack includes a fixture whose name ends like the name of a state file, and a file of
// 40 MiB, such as the archive of a function.
func TestFixturesAndLargeFilesArePacked(t *testing.T) {
	for name, tc := range map[string]struct {
		file   string
		packed bool
	}{
		"fixture":                          {"fixtures/old.tfstate", true},
		"state at the top":                 {"prod.tfstate", false},
		"state of the tool, in any folder": {"modules/net/terraform.tfstate", false},
		"backup of a state":                {"fixtures/old.tfstate.backup", false},
		"unsaved state":                    {"modules/errored.tfstate", false},
		"state lock":                       {"fixtures/.old.tfstate.lock.info", false},
		"state of a workspace":             {"terraform.tfstate.d/dev/terraform.tfstate", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, source())
			before := pack(t, dir).Digest()
			write(t, filepath.Join(dir, tc.file), "{}")
			if changed := pack(t, dir).Digest() != before; changed != tc.packed {
				t.Errorf("packed is %t", changed)
			}
		})
	}
	dir := writeTree(t, source())
	if err := os.WriteFile(filepath.Join(dir, "function.zip"), make([]byte, 40<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if size := pack(t, dir).Bytes(); size < 40<<20 {
		t.Errorf("packed %d bytes", size)
	}
}
