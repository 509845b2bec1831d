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

// On a full disk, the tool can make the file but cannot write the whole state to it.
func TestAnIncompleteStateIsReportedAsIncomplete(t *testing.T) {
	for name, tc := range map[string]struct {
		left  string // content of the tool's file
		kept  bool   // whether the file is moved
		whole bool   // whether the state is reported as complete
	}{
		"complete: it is kept":                {`{"version": 4}`, true, true},
		"incomplete: it is kept and reported": {`{"version": 4, "reso`, true, false},
		"empty: it is not kept":               {"", false, false},
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
				t.Errorf("Salvage = %+v, %v, want %+v", kept, err, want)
			case tc.whole && err != nil, !tc.whole && !errors.Is(err, workspace.ErrNotWhole):
				t.Errorf("Salvage = %+v with error %v; want ErrNotWhole: %v", kept, err, !tc.whole)
			case !tc.whole && tc.kept && !strings.Contains(err.Error(), to):
				t.Errorf("the error %q does not name the path %s", err, to)
			}
			if b, _ := os.ReadFile(to); tc.kept && string(b) != tc.left {
				t.Errorf("the kept file holds %q, want %q", b, tc.left)
			}
			if err := workspace.Remove(data, "job-1"); err != nil {
				t.Errorf("cannot remove the workspace: %v", err)
			}
		})
	}
}

// A job can put any file into its workspace, and other running jobs may be able to write to the folder salvage.
func TestSalvageFollowsNoLinkAndDoesNotBlock(t *testing.T) {
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
		"the target folder is a link": {plant: func(data, src string) error {
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
				t.Errorf("Salvage = %+v, %v, want nothing, and an error: %v", kept, err, tc.fails)
			}
			if st, err := os.Stat(other); err != nil || st.Mode().Perm() != 0o644 {
				t.Errorf("another job's file was changed: %v, %v", st, err)
			}
			if left, _ := os.ReadDir(filepath.Join(data, "empty")); len(left) != 0 {
				t.Errorf("the file was moved through a link: %v", left)
			}
		})
	}
}

// The tool can write the file SourceFolder. Salvage uses the path only if it stays below Source and contains no link.
func TestSourceFolderCannotLeadOutOfTheSource(t *testing.T) {
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
				t.Errorf("Salvage = %+v, %v; want a state: %v", kept, err, found)
			}
		})
	}
}

// In a container the workspace and the folder salvage are two mounts. No rename works between mounts, so Salvage copies
// the file.
func TestAStateIsSalvagedToAnotherMount(t *testing.T) {
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
	for range 2 { // the step calls Salvage, and the agent calls it again
		kept, err := workspace.Salvage(data, "job-1")
		if want := (&wire.Salvaged{Path: "salvage/job-1/errored.tfstate", Whole: true}); err != nil || !reflect.DeepEqual(kept, want) {
			t.Errorf("Salvage = %+v, %v, want %+v", kept, err, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(other, "job-1", "errored.tfstate")); string(b) != `{"version": 4}` {
		t.Errorf("the kept file holds %q: %v", b, err)
	}
}
