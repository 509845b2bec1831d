// Package safefile writes files of which nothing leaves a half, and reads those
// that others may have put in place of one.
package safefile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path whole or not at all: its content is on the
// disk before its name is, and both are when Write returns. Several processes
// may do so at once.
func Write(path string, b []byte, perm fs.FileMode) error {
	if err := put(path, b, perm, true, os.Rename); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// Create is Write for a file that is not there yet: the first of several that
// create it wins, and the others get fs.ErrExist once it is on the disk.
func Create(path string, b []byte, perm fs.FileMode) error {
	// Unlike a rename, a link never replaces a file, and unlike an exclusive create it
	// never shows half of one.
	err := put(path, b, perm, true, func(from, to string) error { return errors.Join(os.Link(from, to), os.Remove(from)) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Who lost the race syncs too: the winner may not have yet.
	return cmp.Or(SyncFolder(filepath.Dir(path)), err)
}

// Replace is Write without waiting for the disk: the file is whole while the
// machine is up, and a power cut may leave the old one, or an empty one.
func Replace(path string, b []byte, perm fs.FileMode) error {
	return put(path, b, perm, false, os.Rename)
}

// put writes a file of a name that was not there, and gives it its own.
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

// SyncFolder has the names in a folder survive a power cut: what was made,
// renamed or removed there. The content of its files is synced by itself.
func SyncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
