package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/workspace"
)

func take(t *testing.T, data, id string) *workspace.Held {
	t.Helper()
	h, err := workspace.Take(t.Context(), data, "site", id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// All jobs of a component work at one path, one after the other; each finds it
// empty, and the agent finds it by the attempt.
func TestEveryJobOfAComponentWorkedInAFolderOfItsOwn(t *testing.T) {
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
			t.Errorf("%s holds %v, %v", dir, left, err)
		}
	}
	second := take(t, data, "job-2")
	defer second.Remove()
	if second.Path != first.Path {
		t.Errorf("first %s, then %s", first.Path, second.Path)
	}
	if there, err := os.ReadDir(second.Path); err != nil || len(there) > 0 {
		t.Errorf("it holds %v, %v", there, err)
	}
}

func TestTwoAttemptsAtWorkInOneFolder(t *testing.T) {
	data := t.TempDir()
	first := take(t, data, "job-1")
	_, err := workspace.Take(t.Context(), data, "site", "job-2", time.Millisecond)
	held, ok := errors.AsType[*workspace.HeldError](err)
	if !ok || held.By != "job-1" || held.Path != first.Path {
		t.Fatalf("the second gets %v", err)
	}
	// It waits until the first lets go.
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
	// What comes too late for the first does not touch the second's.
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

// A step was killed and left a state that its tool could not save: the next job of
// the component, or the agent, keeps it.
func TestAStateOfAnAttemptThatDiedInTheFolderIsSalvaged(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, data string){
		"by the next job":   func(t *testing.T, data string) { take(t, data, "job-2").Remove() },
		"by the agent":      func(t *testing.T, data string) { workspace.Remove(data, "job-1") },
		"by a repeated one": func(t *testing.T, data string) { take(t, data, "job-1").Remove() },
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
				t.Error("the attempt's path is left")
			}
		})
	}
}

// A job may write what it likes where its step notes who has the folder.
func TestTheOwnerOfAFolderIsNoPath(t *testing.T) {
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
		t.Error("something was made outside")
	}
}
