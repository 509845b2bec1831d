// Package workspace makes and removes the folder in which one attempt of a job works. It removes the
// folder with all files that the tool left there.
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

// Root is the folder, below the runner's data folder, that holds the workspaces of attempts.
const Root = "work"

// Path returns the path of the attempt's workspace, or of a link to it; see Take.
func Path(data, id string) string { return filepath.Join(data, Root, id) }

// Create makes an empty workspace, readable only by its owner. It first removes an existing workspace
// of the same attempt.
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

// mounted reports whether path is a mount point in a container. A mount point cannot be removed from
// inside the container, so the agent removes the folder. If path is an empty folder and no mount point, mounted
// removes it.
func mounted(path string) bool {
	return errors.Is(os.Remove(path), unix.EBUSY)
}

// Remove removes the attempt's workspace. A missing workspace is no error. Before the
// removal, it salvages a state that the tool could not save. It also removes folders that a tool made read-only.
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

// RemoveTree removes a folder with all its files, including read-only folders. It follows no link.
func RemoveTree(path string) error {
	err := os.RemoveAll(path)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// WalkDir follows no links, so nothing outside the folder is changed.
	walkErr := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700) // if this fails, RemoveAll below returns the error
		}
		if err != nil && d != nil && d.IsDir() {
			return nil
		}
		return nil
	})
	return errors.Join(walkErr, os.RemoveAll(path))
}

// unusedFor is how long an unused file is kept: a plan that no job applies, or the record of a backend
// that no job uses.
const unusedFor = 7 * 24 * time.Hour

// RemoveUnused removes the entries of the folder that did not change for a week. If it cannot remove an
// entry, the next call tries again.
func RemoveUnused(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unusedFor {
			os.RemoveAll(filepath.Join(folder, e.Name()))
		}
	}
}
