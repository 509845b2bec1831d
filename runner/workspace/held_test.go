package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/workspace"
)

// take takes the workspace of the site "site".
func take(t *testing.T, data, id string) *workspace.Held {
	t.Helper()
	h, err := workspace.Take(t.Context(), data, "site", id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The jobs of a component work at the same path, one after the other. Each job gets an empty workspace. The agent finds
// the workspace by the attempt's ID.
func TestJobsOfAComponentShareOnePath(t *testing.T) {
	data := t.TempDir()
	first := take(t, data, "job-1")
	if err := os.WriteFile(filepath.Join(first.Path, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(workspace.Path(data, "job-1"), "left")); err != nil {
		t.Error(err)
	}
	if err := first.Remove(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{workspace.Root, workspace.Sites} {
		if left, err := os.ReadDir(filepath.Join(data, dir)); err != nil || len(left) > 0 {
			t.Errorf("after Remove, the folder %s still holds %v: %v", dir, left, err)
		}
	}
	second := take(t, data, "job-2")
	defer second.Remove()
	if second.Path != first.Path {
		t.Errorf("the second job works in %s, want %s like the first", second.Path, first.Path)
	}
	if there, err := os.ReadDir(second.Path); err != nil || len(there) > 0 {
		t.Errorf("the second job's workspace holds %v, want nothing: %v", there, err)
	}
}

func TestTwoAttemptsNeverShareAWorkspace(t *testing.T) {
	data := t.TempDir()
	first := take(t, data, "job-1")
	_, err := workspace.Take(t.Context(), data, "site", "job-2", time.Millisecond)
	held, ok := errors.AsType[*workspace.HeldError](err)
	if !ok || held.By != "job-1" || held.Path != first.Path {
		t.Fatalf("the second Take returned %v, want a HeldError that names job-1", err)
	}
	// The second Take waits until the first attempt releases the workspace.
	taken := make(chan *workspace.Held)
	go func() {
		h, err := workspace.Take(t.Context(), data, "site", "job-2", time.Minute)
		if err != nil {
			t.Error(err)
		}
		taken <- h
	}()
	if err := first.Remove(); err != nil {
		t.Error(err)
	}
	second := <-taken
	// A late Remove of the first attempt does not touch the workspace of the second.
	if err := workspace.Remove(data, "job-1"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(second.Path); err != nil {
		t.Error(err)
	}
	if err := second.Remove(); err != nil {
		t.Error(err)
	}
}

// A killed step can leave a state that its tool could not save. The next job of the component, or the agent, salvages it.
func TestAStateOfADeadAttemptIsSalvaged(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, data string){
		"by the next job":                func(t *testing.T, data string) { take(t, data, "job-2").Remove() },
		"by the agent":                   func(t *testing.T, data string) { workspace.Remove(data, "job-1") },
		"by a repetition of the attempt": func(t *testing.T, data string) { take(t, data, "job-1").Remove() },
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			dead := take(t, data, "job-1")
			src := filepath.Join(dead.Path, workspace.Source)
			if err := errors.Join(os.Mkdir(src, 0o700), os.WriteFile(filepath.Join(src, "errored.tfstate"), []byte(`{"version":4}`), 0o600), dead.Release()); err != nil {
				t.Fatal(err)
			}
			next(t, data)
			if _, err := os.Stat(filepath.Join(data, "salvage", "job-1", "errored.tfstate")); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(workspace.Path(data, "job-1")); err == nil {
				t.Error("the link to the workspace was not removed")
			}
		})
	}
}

// A job can write a path into the lock file in place of the owner's name. The path is not used.
func TestAPathInTheLockFileIsIgnored(t *testing.T) {
	data := t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, workspace.Sites), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(workspace.SitePath(data, "site")+".lock", []byte("../../out"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := take(t, data, "job-1").Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(data, "..", "out")); err == nil {
		t.Error("Take made a file outside the data folder")
	}
}
