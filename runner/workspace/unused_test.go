package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/workspace"
)

func TestRemoveUnusedRemovesFilesAfterAWeek(t *testing.T) {
	folder := t.TempDir()
	for name, age := range map[string]time.Duration{"old": 8 * 24 * time.Hour, "young": 6 * 24 * time.Hour} {
		path := filepath.Join(folder, name)
		then := time.Now().Add(-age)
		if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "plan"), nil, 0o600), os.Chtimes(path, then, then)); err != nil {
			t.Fatal(err)
		}
	}
	workspace.RemoveUnused(folder)
	workspace.RemoveUnused(filepath.Join(folder, "none"))
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("the folder holds %v, want only young: %v", left, err)
	}
}
