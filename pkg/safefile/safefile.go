// Package safefile writes files completely or not at all. It also reads files from
// folders in which others can replace a file, for example by a link.
package safefile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path completely or not at all. The content is on the
// disk before the name changes. The content and the name are on the disk when Write
// returns. Safe for concurrent use by several processes.
func Write(path string, b []byte, perm fs.FileMode) error {
	if err := put(path, b, perm, true, os.Rename); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// Create is Write for a new file. If several processes create the file at once, one
// process succeeds. The other processes get fs.ErrExist after the file is on the disk.
func Create(path string, b []byte, perm fs.FileMode) error {
	// A rename could replace an existing file. With an exclusive create, readers could
	// see an incomplete file. A link has neither problem.
	err := put(path, b, perm, true, func(from, to string) error { return errors.Join(os.Link(from, to), os.Remove(from)) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Sync also after fs.ErrExist: the process that created the file may not have synced the folder yet.
	return cmp.Or(SyncFolder(filepath.Dir(path)), err)
}

// Replace is Write without waiting for the disk. Readers see a complete file, but
// after a power cut the file can be the old one or empty.
func Replace(path string, b []byte, perm fs.FileMode) error {
	return put(path, b, perm, false, os.Rename)
}

// put writes a temporary file beside path. Then the function name gives the file its
// final name.
func put(path string, b []byte, perm fs.FileMode, sync bool, name func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(perm))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = name(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to report
	}
	return err
}

// SyncFolder writes the names in a folder to the disk, so that created, renamed and
// removed files survive a power cut. It does not sync the content of files.
func SyncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
