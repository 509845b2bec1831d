package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/runner/internal/workspace"
)

// On a full disk the tool makes the file and cannot write into it.
func TestAnEmptyOrTornCopyOfAStateIsNotTakenForOne(t *testing.T) {
	for name, tc := range map[string]struct {
		left  string
		kept  bool
		whole bool
	}{
		"whole: it is kept":               {`{"version": 4}`, true, true},
		"torn: it is kept, and said":      {`{"version": 4, "reso`, true, false},
		"empty: there is nothing to keep": {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			dir, err := workspace.Create(data, "job-1")
			if err != nil {
				t.Fatal(err)
			}
			src := filepath.Join(dir, workspace.Source)
			if err := errors.Join(os.Mkdir(src, 0o700), os.WriteFile(filepath.Join(src, "errored.tfstate"), []byte(tc.left), 0o600)); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(data, "salvage", "job-1", "errored.tfstate")
			kept, err := workspace.Salvage(data, "job-1")
			switch {
			case tc.whole && (err != nil || kept != to):
				t.Errorf("got %q, %v", kept, err)
			case !tc.whole && (!errors.Is(err, workspace.ErrNotWhole) || kept != ""):
				t.Errorf("got %q, %v", kept, err)
			case !tc.whole && tc.kept && !strings.Contains(err.Error(), to):
				t.Errorf("it does not say where it is: %v", err)
			}
			if b, _ := os.ReadFile(to); tc.kept && string(b) != tc.left {
				t.Errorf("kept: %q", b)
			}
			if err := workspace.Remove(data, "job-1"); err != nil {
				t.Errorf("the workspace is not removed: %v", err)
			}
		})
	}
}
