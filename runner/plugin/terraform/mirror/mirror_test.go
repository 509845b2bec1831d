package mirror_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror/mirrortest"
)

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mirror") // made by the first Put
	mirrortest.Run(t, func(t *testing.T) mirror.Mirror { return mirror.Folder(dir) })
}

// A file that never ends must not fill the disk of each job.
func TestArchiveHasALimit(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large.zip"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "large.zip"), providers.MaxArchive+1); err != nil { // sparse
		t.Fatal(err)
	}
	if err := mirror.Folder(dir).Get(t.Context(), "large.zip", io.Discard); !errors.Is(err, mirror.ErrTooLarge) {
		t.Errorf("error %v, want mirror.ErrTooLarge", err)
	}
}
