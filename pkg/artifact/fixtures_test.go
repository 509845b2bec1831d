package artifact_test

import (
	"os"
	"path/filepath"
	"testing"
)

// A fixture was not there at the plan, as its name ends as those of states do; a
// function's archive of 40 MiB was refused.
func TestFixturesAndLargeFilesArePacked(t *testing.T) {
	for name, tc := range map[string]struct {
		file   string
		packed bool
	}{
		"a fixture":                          {"fixtures/old.tfstate", true},
		"a state at the top":                 {"prod.tfstate", false},
		"the tool's own, anywhere":           {"modules/net/terraform.tfstate", false},
		"a backup, which holds what it held": {"fixtures/old.tfstate.backup", false},
		"one that was not saved":             {"modules/errored.tfstate", false},
		"a lock":                             {"fixtures/.old.tfstate.lock.info", false},
		"the states of workspaces":           {"terraform.tfstate.d/dev/terraform.tfstate", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, source())
			before := pack(t, dir).Digest()
			write(t, filepath.Join(dir, tc.file), "{}")
			if changed := pack(t, dir).Digest() != before; changed != tc.packed {
				t.Errorf("packed: %t", changed)
			}
		})
	}
	dir := writeTree(t, source())
	if err := os.WriteFile(filepath.Join(dir, "function.zip"), make([]byte, 40<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if size := pack(t, dir).Bytes(); size < 40<<20 {
		t.Errorf("packed to %d bytes", size)
	}
}
