package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/workspace"
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
			var want *wire.Salvaged
			if tc.kept {
				want = &wire.Salvaged{Path: "salvage/job-1/errored.tfstate", Whole: tc.whole}
			}
			kept, err := workspace.Salvage(data, "job-1")
			switch {
			case !reflect.DeepEqual(kept, want):
				t.Errorf("got %+v, %v", kept, err)
			case tc.whole && err != nil, !tc.whole && !errors.Is(err, workspace.ErrNotWhole):
				t.Errorf("got %+v, %v", kept, err)
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

// A job leaves its workspace as it likes, and others that run may write where
// states are salvaged to.
func TestSalvageFollowsNoLinkAndWaitsForNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(data, src string) error
		fails bool
	}{
		"the file is a pipe": {plant: func(_, src string) error { return unix.Mkfifo(filepath.Join(src, "errored.tfstate"), 0o600) }},
		"the file is a link": {plant: func(data, src string) error {
			return os.Symlink(filepath.Join(data, "other", "errored.tfstate"), filepath.Join(src, "errored.tfstate"))
		}},
		"the folder is a link": {plant: func(data, src string) error {
			return errors.Join(os.Remove(src), os.Symlink(filepath.Join(data, "other"), src))
		}},
		"it leads to somewhere else": {plant: func(data, src string) error {
			return errors.Join(os.WriteFile(filepath.Join(src, "errored.tfstate"), []byte("{}"), 0o600), os.Mkdir(filepath.Join(data, "salvage"), 0o700),
				os.Symlink(filepath.Join(data, "empty"), filepath.Join(data, "salvage", "job-1")))
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			dir, err := workspace.Create(data, "job-1")
			if err != nil {
				t.Fatal(err)
			}
			src, other := filepath.Join(dir, workspace.Source), filepath.Join(data, "other", "errored.tfstate")
			if err := errors.Join(os.Mkdir(src, 0o700), os.Mkdir(filepath.Dir(other), 0o700), os.Mkdir(filepath.Join(data, "empty"), 0o700),
				os.WriteFile(other, []byte("{}"), 0o644), tc.plant(data, src)); err != nil {
				t.Fatal(err)
			}
			kept, err := workspace.Salvage(data, "job-1")
			if kept != nil || (err != nil) != tc.fails {
				t.Errorf("got %+v, %v", kept, err)
			}
			if st, err := os.Stat(other); err != nil || st.Mode().Perm() != 0o644 {
				t.Errorf("what is not the job's is %v, %v", st, err)
			}
			if left, _ := os.ReadDir(filepath.Join(data, "empty")); len(left) != 0 {
				t.Errorf("it was moved to %v", left)
			}
		})
	}
}

// The tool may have written which folder it runs in. It may name no other than one of
// its source, and through no link.
func TestTheFolderInWhichToLookIsOfTheSource(t *testing.T) {
	for folder, found := range map[string]bool{
		"live/web": true, ".": false, "": false, "live": false, "gone": false, "../../other": false, "/etc": false, "live/../live/web": false, "link/web": false, "live/web\n": false,
	} {
		t.Run(folder, func(t *testing.T) {
			data := t.TempDir()
			dir, err := workspace.Create(data, "job-1")
			if err != nil {
				t.Fatal(err)
			}
			src := filepath.Join(dir, workspace.Source)
			for _, in := range []string{filepath.Join(src, "live", "web"), filepath.Join(data, "work", "other")} {
				if err := errors.Join(os.MkdirAll(in, 0o700), os.WriteFile(filepath.Join(in, "errored.tfstate"), []byte("{}"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Symlink("live", filepath.Join(src, "link")), os.WriteFile(filepath.Join(dir, workspace.SourceFolder), []byte(folder), 0o600)); err != nil {
				t.Fatal(err)
			}
			if kept, err := workspace.Salvage(data, "job-1"); err != nil || (kept != nil) != found {
				t.Errorf("got %+v, %v", kept, err)
			}
		})
	}
}

// In a container the workspace and the folder of salvaged states are two mounts,
// between which no file can be moved: the state was said to be lost.
func TestAStateIsNotSalvagedToAnotherMount(t *testing.T) {
	data := t.TempDir()
	other, err := os.MkdirTemp("/dev/shm", "fairlead-test-")
	if err != nil {
		t.Skip("SKIPPED, NOTHING WAS TESTED: there is no /dev/shm: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	dir, err := workspace.Create(data, "job-1")
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, workspace.Source, "errored.tfstate")
	if err := errors.Join(os.Mkdir(filepath.Dir(left), 0o700), os.WriteFile(left, []byte(`{"version": 4}`), 0o600), os.Symlink(other, filepath.Join(data, "salvage"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(left, filepath.Join(other, "x")); !errors.Is(err, unix.EXDEV) {
		t.Skip("SKIPPED, NOTHING WAS TESTED: /dev/shm is no other mount: ", err)
	}
	for range 2 { // the agent does so again, after the step
		kept, err := workspace.Salvage(data, "job-1")
		if want := (&wire.Salvaged{Path: "salvage/job-1/errored.tfstate", Whole: true}); err != nil || !reflect.DeepEqual(kept, want) {
			t.Errorf("got %+v, %v", kept, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(other, "job-1", "errored.tfstate")); string(b) != `{"version": 4}` {
		t.Errorf("kept: %q, %v", b, err)
	}
}
