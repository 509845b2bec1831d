// Package workspace makes the folder that one attempt of a job works in, and
// removes it, whatever the tool has left there.
package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Root is the folder, below the runner's data folder, that workspaces are in.
const Root = "work"

// Path returns the workspace of the attempt, or a link to it; see Take.
func Path(data, id string) string { return filepath.Join(data, Root, id) }

// Create makes an empty workspace, readable by its owner alone. One that is
// left over from the same attempt is removed first.
func Create(data, id string) (string, error) {
	path := Path(data, id)
	if err := Remove(data, id); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make workspace: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil && !(errors.Is(err, fs.ErrExist) && mounted(path)) {
		return "", fmt.Errorf("make workspace: %w", err)
	}
	return path, nil
}

// mounted reports whether path is an empty folder that cannot be removed from
// here, because it is where a container sees a folder of the machine. Whoever
// has made the container removes it from there.
func mounted(path string) bool {
	return errors.Is(os.Remove(path), unix.EBUSY)
}

// Remove removes the workspace of the attempt; one that is gone is no error. A
// state that the tool could not save is salvaged first. Folders that a tool has
// made unwritable are made writable.
func Remove(data, id string) error {
	if site := linked(data, id); site != "" {
		return release(data, site, id)
	}
	path := Path(data, id)
	if _, err := Salvage(data, id); err != nil && !errors.Is(err, ErrNotWhole) {
		return err
	}
	if err := RemoveTree(path); err != nil && !mounted(path) {
		return fmt.Errorf("remove workspace: %w", err)
	}
	return nil
}

// RemoveTree removes a folder and all that is in it, unwritable folders too. It
// follows no link.
func RemoveTree(path string) error {
	err := os.RemoveAll(path)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// WalkDir does not follow links, so nothing outside is touched.
	walkErr := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700) // what cannot be changed fails below
		}
		if err != nil && d != nil && d.IsDir() {
			return nil
		}
		return nil
	})
	return errors.Join(walkErr, os.RemoveAll(path))
}

// unusedFor is how long a plan that nobody applies is kept, and what is known of a
// backend that no job has.
const unusedFor = 7 * 24 * time.Hour

// RemoveUnused removes what is in the folder and was not changed for a week. What
// cannot be removed is tried again with the next call.
func RemoveUnused(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unusedFor {
			os.RemoveAll(filepath.Join(folder, e.Name()))
		}
	}
}
