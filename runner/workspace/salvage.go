package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// Source is the folder of a workspace that holds the component's source. The tool runs in it, or in
// the folder below it that SourceFolder names.
const Source = "src"

// SourceFolder is a file of a workspace. It holds the path below Source, with slashes, in which the
// tool runs. Without the file, the tool runs in Source.
const SourceFolder = "folder"

// Reserve is a file of a workspace that reserves the disk space to save a state. The step or the agent
// removes it when the tool needs the space.
const Reserve = "reserve"

// ErrNotWhole means that the tool's file with the unsaved state is incomplete: the tool lacked disk
// space or time to write it.
var ErrNotWhole = errors.New("the copy of the state that the tool left is incomplete: is the disk full?")

// DiskFull reports whether err means that a disk has no space left, or that this user's quota is used
// up.
func DiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// Salvage moves a state that the tool could not save from the attempt's workspace to salvage/<id>/ in
// the data folder. It returns a description of the moved file, or nil if there is no such state. The
// runner never removes the moved file; a person must do so. If the file is incomplete, the error wraps ErrNotWhole and names the file's path.
// If there is any error, the description's Whole is false.
//
// A job wrote the workspace, and other running jobs may be able to write to the folder salvage. So
// Salvage opens no file twice and follows no link.
func Salvage(data, id string) (*wire.Salvaged, error) {
	src := filepath.Join(Path(data, id), Source)
	for _, step := range append([]string{"."}, runsIn(Path(data, id))...) {
		src = filepath.Join(src, step)
		if st, err := os.Lstat(src); err == nil && !st.IsDir() {
			return nil, nil // for example a link, which may lead to files of another attempt
		}
	}
	for _, t := range component.Types() {
		if t.UnsavedState == "" {
			continue
		}
		if kept, err := salvage(filepath.Join(src, t.UnsavedState), data, id); kept != nil || err != nil {
			return kept, err
		}
	}
	return nil, nil
}

// salvage does what Salvage does, for one file. The file need not exist.
func salvage(from, data, id string) (*wire.Salvaged, error) {
	f, err := safefile.Open(from)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefile.ErrNotRegular) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a state that was not saved: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look for a state that was not saved: %w", err)
	}
	if st.Size() == 0 {
		return nil, ErrNotWhole
	}
	to, err := move(f, from, data, id)
	if to == "" {
		return nil, fmt.Errorf("keep a state that was not saved: %w", err)
	}
	kept := &wire.Salvaged{Path: path.Join("salvage", id, filepath.Base(from))}
	if err != nil {
		return kept, fmt.Errorf("keep a state that was not saved: %w", err)
	}
	whole, err := isJSON(f)
	if err != nil {
		return kept, fmt.Errorf("read a state that was not saved: %w", err)
	}
	if !whole {
		return kept, fmt.Errorf("%w; the incomplete copy is kept in %s", ErrNotWhole, to)
	}
	kept.Whole = true
	return kept, nil
}

// maxFolder is the largest number of bytes that are read of SourceFolder.
const maxFolder = 4096

// runsIn returns the parts of the path in SourceFolder. The tool may have written the file, so
// fs.ValidPath must accept the path: it cannot lead out of Source.
func runsIn(workspace string) []string {
	f, err := safefile.Open(filepath.Join(workspace, SourceFolder))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFolder))
	if err != nil || !fs.ValidPath(string(b)) {
		return nil
	}
	return strings.Split(string(b), "/")
}

// move moves the file to the attempt's folder in salvage and syncs it, so that it survives a power
// cut. f is the open file at path from. If the copy to another mount, the chmod or a sync fails, move
// returns the new path with the error.
func move(f *os.File, from, data, id string) (to string, err error) {
	folder, name := filepath.Join(data, "salvage", id), filepath.Base(from)
	if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
		return "", err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	dir, err := os.OpenFile(folder, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	err = unix.Renameat(unix.AT_FDCWD, from, int(dir.Fd()), name)
	if errors.Is(err, unix.EXDEV) { // in a container the two folders are two mounts
		return filepath.Join(folder, name), errors.Join(copyTo(dir, name, f), dir.Sync())
	}
	if err != nil {
		return "", &os.LinkError{Op: "renameat", Old: from, New: filepath.Join(folder, name), Err: err}
	}
	return filepath.Join(folder, name), errors.Join(f.Chmod(0o600), f.Sync(), dir.Sync())
}

// copyTo copies the file into the folder and seeks f back to its start. The original stays in the
// workspace, and is removed with the workspace.
func copyTo(dir *os.File, name string, f *os.File) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "openat", Path: name, Err: err}
	}
	to := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(to, f)
	_, back := f.Seek(0, io.SeekStart)
	return errors.Join(err, back, to.Sync(), to.Close())
}

// isJSON reports whether r is one JSON value and nothing else. It stops at the first invalid byte, so a
// large file that is not JSON is not read to its end.
func isJSON(r io.Reader) (bool, error) {
	d := json.NewDecoder(r)
	for _, want := range []error{nil, io.EOF} {
		var v json.RawMessage
		err := d.Decode(&v)
		if _, other := errors.AsType[*os.PathError](err); other {
			return false, err
		}
		if !errors.Is(err, want) {
			return false, nil
		}
	}
	return true, nil
}
