package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/runner/internal/regular"
)

// Source is the folder of a workspace in which the tool runs.
const Source = "src"

// Errored is the file, in Source, into which OpenTofu and Terraform write a state
// that they could not save.
const Errored = "errored.tfstate"

// Reserve is a file that takes the space which is needed to save a state. Whoever
// needs the space removes it.
const Reserve = "reserve"

// ErrNotWhole says that the tool had no room, or no time, to write down a state
// that it could not save.
var ErrNotWhole = errors.New("the copy of the state that the tool left is not whole: is the disk full?")

// Salvage moves a state that the tool could not save out of the workspace of
// the attempt, to salvage/<id>/ in the data folder, and returns its path; ""
// if there is none. Nothing removes it but a person. If it is not whole, the
// error wraps ErrNotWhole and says where what there is of it is kept.
//
// The workspace is as a job has left it, and the folder salvage may be open to
// others that run, so nothing is opened twice and no link is followed.
func Salvage(data, id string) (string, error) {
	src := filepath.Join(Path(data, id), Source)
	if st, err := os.Lstat(src); err == nil && !st.IsDir() {
		return "", nil // a link, say: what it leads to is not of this attempt
	}
	from := filepath.Join(src, Errored)
	f, err := regular.Open(from)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, regular.ErrNot) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for a state that was not saved: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("look for a state that was not saved: %w", err)
	}
	if st.Size() == 0 {
		return "", ErrNotWhole
	}
	to, err := move(f, from, data, id)
	if err != nil {
		return "", fmt.Errorf("keep a state that was not saved: %w", err)
	}
	whole, err := isJSON(f)
	if err != nil {
		return "", fmt.Errorf("read a state that was not saved: %w", err)
	}
	if !whole {
		return "", fmt.Errorf("%w; what there is of it is kept in %s", ErrNotWhole, to)
	}
	return to, nil
}

// move moves the file, which f has open, to the folder of the attempt in
// salvage, so that it is there after a power cut.
func move(f *os.File, from, data, id string) (to string, err error) {
	folder := filepath.Join(data, "salvage", id)
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
	if err := unix.Renameat(unix.AT_FDCWD, from, int(dir.Fd()), Errored); err != nil {
		return "", &os.LinkError{Op: "renameat", Old: from, New: filepath.Join(folder, Errored), Err: err}
	}
	return filepath.Join(folder, Errored), errors.Join(f.Chmod(0o600), f.Sync(), dir.Sync())
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
