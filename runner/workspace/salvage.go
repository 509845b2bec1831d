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

// Source is the folder of a workspace in which the source is. The tool runs in it,
// or in the folder below it that SourceFolder names.
const Source = "src"

// SourceFolder is a file of a workspace with the path below Source at which the
// tool runs, with slashes. Without it, that is Source itself.
const SourceFolder = "folder"

// Reserve is a file that takes the space which is needed to save a state. Whoever
// needs the space removes it.
const Reserve = "reserve"

// ErrNotWhole says that the tool had no room, or no time, to write down a state
// that it could not save.
var ErrNotWhole = errors.New("the copy of the state that the tool left is not whole: is the disk full?")

// DiskFull reports whether err says that a disk has no space left, or none for
// this user.
func DiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// Salvage moves a state that the tool could not save out of the workspace of
// the attempt, to salvage/<id>/ in the data folder, and says what is kept there;
// nil if there is nothing. Nothing removes it but a person. If it is not whole,
// the error wraps ErrNotWhole and says where what there is of it is kept. Beside
// any error what is kept is not called whole.
//
// The workspace is as a job has left it, and the folder salvage may be open to
// others that run, so nothing is opened twice and no link is followed.
func Salvage(data, id string) (*wire.Salvaged, error) {
	src := filepath.Join(Path(data, id), Source)
	for _, step := range append([]string{"."}, runsIn(Path(data, id))...) {
		src = filepath.Join(src, step)
		if st, err := os.Lstat(src); err == nil && !st.IsDir() {
			return nil, nil // a link, say: what it leads to is not of this attempt
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

// salvage is Salvage of the file, which may not be there.
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
		return kept, fmt.Errorf("%w; what there is of it is kept in %s", ErrNotWhole, to)
	}
	kept.Whole = true
	return kept, nil
}

// maxFolder is the longest SourceFolder that is read, in bytes.
const maxFolder = 4096

// runsIn returns the steps of the path that SourceFolder names. The tool may have
// written the file: it says no more than where, below Source, to look.
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

// move moves the file, which f has open, to the folder of the attempt in
// salvage, so that it is there after a power cut. Once it is moved, its path is
// returned beside an error too.
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
	if errors.Is(err, unix.EXDEV) { // in a container they are two mounts
		return filepath.Join(folder, name), errors.Join(copyTo(dir, name, f), dir.Sync())
	}
	if err != nil {
		return "", &os.LinkError{Op: "renameat", Old: from, New: filepath.Join(folder, name), Err: err}
	}
	return filepath.Join(folder, name), errors.Join(f.Chmod(0o600), f.Sync(), dir.Sync())
}

// copyTo copies the file, whose place is then read again from its beginning, into
// the folder. The file itself is removed with its workspace.
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

// isJSON reports whether r is one JSON value and nothing else. Of a file of many
// gigabytes that is none it reads no more than shows it.
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
