package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
func Salvage(data, id string) (string, error) {
	from := filepath.Join(Path(data, id), Source, Errored)
	st, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !st.Mode().IsRegular() {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for a state that was not saved: %w", err)
	}
	if st.Size() == 0 {
		return "", ErrNotWhole
	}
	dir := filepath.Join(data, "salvage", id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("keep a state that was not saved: %w", err)
	}
	to := filepath.Join(dir, Errored)
	if err := os.Rename(from, to); err != nil {
		return "", fmt.Errorf("keep a state that was not saved: %w", err)
	}
	if err := errors.Join(os.Chmod(to, 0o600), syncPath(to), syncPath(dir)); err != nil {
		return "", fmt.Errorf("keep a state that was not saved: %w", err)
	}
	b, err := os.ReadFile(to)
	if err != nil {
		return "", fmt.Errorf("read a state that was not saved: %w", err)
	}
	if !json.Valid(b) {
		return "", fmt.Errorf("%w; what there is of it is kept in %s", ErrNotWhole, to)
	}
	return to, nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
