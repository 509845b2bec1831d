package terraform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

const (
	// minReserve is the minimum space reserved for the state, in bytes. It is unknown how much an apply adds to the state.
	minReserve = 16 << 20
	// otherSpace is the space that an apply needs besides its state, in bytes: for its log, and for the temporary data of
	// the tool and its providers.
	otherSpace = 16 << 20
	// stateCopies is how many copies of a state may be on the disk at once: the old one, the one being written, the
	// tool's own backup, and the copy of a state that could not be saved.
	stateCopies = 4
)

// reserveSpace refuses an apply, before it changes anything, if the disk lacks space for its state. Otherwise it allocates
// the space, so that no other process takes it. plan is the size of the saved plan in bytes. The space is free again after
// releaseReserve, or after the workspace is removed.
func (j *job) reserveSpace(plan int64) error {
	s, ok := j.state.(*local)
	if !ok {
		return nil
	}
	state := int64(0)
	st, err := os.Stat(filepath.Join(s.dir, "terraform.tfstate"))
	switch {
	case err == nil:
		state = st.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read the state: %w", err)
	}
	reserve := max(minReserve, stateCopies*state+plan)
	need := reserve + otherSpace
	free, err := freeSpace(s.dir)
	if err != nil {
		return fmt.Errorf("find the free space of %s: %w", s.dir, err)
	}
	if free < need {
		return diskFull(s.dir, free, need)
	}
	path := filepath.Join(j.env.Workspace, workspace.Reserve)
	switch err := allocate(path, reserve); {
	case errors.Is(err, syscall.ENOSPC):
		os.Remove(path)
		free, _ := freeSpace(j.env.Workspace) // only for the message
		return diskFull(j.env.Workspace, free, need)
	case errors.Is(err, errors.ErrUnsupported):
		os.Remove(path) // this file system cannot allocate: the check of the free space must suffice
	case err != nil:
		return fmt.Errorf("reserve space for the state: %w", err)
	}
	return nil
}

func diskFull(dir string, free, need int64) error {
	return plugin.Errorf(fairlead.ReasonDiskFull, "the runner's disk is full: %s has %d bytes free, and this apply needs %d (%d MiB) to save its state safely. Nothing was changed; make space on the runner, then retry",
		dir, free, need, (need+1<<20-1)>>20)
}

// releaseReserve frees the space that reserveSpace allocated.
func (j *job) releaseReserve() { os.Remove(filepath.Join(j.env.Workspace, workspace.Reserve)) }

// freeSpace returns how many bytes can be written to the folder's file system.
func freeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// unsavedState returns the name of the file into which the tool writes a state that it could not save.
func unsavedState() string {
	t, _ := component.Of(Name)
	return t.UnsavedState
}

// rescueDump writes the printed state to the file in which the tool would have saved its own copy. A tool prints its state if
// it cannot save it. rescueDump frees the reserved space first, so that the state fits on the disk.
func (j *job) rescueDump(dump []byte) error {
	if len(dump) == 0 {
		return nil
	}
	j.releaseReserve()
	path := filepath.Join(j.src, unsavedState())
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("save the state that the tool printed: %w", err)
	}
	_, err = f.Write(dump)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("save the state that the tool printed: %w", err)
	}
	return nil
}
