package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/runner/proctree"
)

// Sites is the folder, below the runner's data folder, that holds the workspaces of components. All
// jobs of a component work at the same path, because a module can use its own path (path.cwd,
// abspath). The path is then in the module's plan and state.
const Sites = "components"

// SiteOf returns the name of the workspace of an install's component, or "" if installID or component
// is empty. The name has 16 characters, because providers make sockets in workspaces, and paths of
// sockets must be short.
func SiteOf(installID, component string) string {
	if installID == "" || component == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(installID + "/" + component))
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
}

// SitePath returns the path of the site's workspace.
func SitePath(data, site string) string { return filepath.Join(data, Sites, site) }

// HeldError reports that another attempt, or its tool, still uses the workspace.
type HeldError struct {
	Path string
	By   string // the other attempt; "": unknown
}

func (e *HeldError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("another attempt works in the folder %s", e.Path)
	}
	return fmt.Sprintf("the attempt %s works in the folder %s", e.By, e.Path)
}

// Held is a workspace that one attempt has for itself until Release, Remove or the end of the
// process.
type Held struct {
	Path string // path of the folder; when Take returns, the folder is empty and readable only by its owner

	data, site, id string
	lock           *os.File // nil: no other attempt can use this path
}

// lockPause is the pause between two attempts to lock a site. The previous attempt releases the lock
// some milliseconds after the control plane accepted its report.
const lockPause = 5 * time.Millisecond

// Take gives the workspace of the site to the attempt id. If site is "", the attempt gets a workspace
// of its own. Take salvages an unsaved state of an earlier attempt and removes its files. The error is
// a *HeldError if another attempt does not release the workspace within wait.
//
// While the attempt has the workspace, Path(data, id) leads to the workspace too. In a container, the
// same folder is mounted at Path(data, id) and at the site's path, and no lock is needed.
func Take(ctx context.Context, data, site, id string, wait time.Duration) (*Held, error) {
	h := &Held{data: data, site: site, id: id}
	if site == "" || sameFolder(SitePath(data, site), Path(data, id)) {
		path, err := Create(data, id)
		if h.Path = path; err == nil && site != "" {
			h.Path = SitePath(data, site)
		}
		return h, err
	}
	h.Path = SitePath(data, site)
	for _, dir := range []string{Root, Sites} {
		if err := os.MkdirAll(filepath.Join(data, dir), 0o700); err != nil {
			return nil, fmt.Errorf("make workspace: %w", err)
		}
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		err := h.try()
		if err == nil {
			break
		}
		if _, held := errors.AsType[*HeldError](err); !held {
			return nil, fmt.Errorf("make workspace: %w", err)
		}
		again := time.NewTimer(lockPause)
		select {
		case <-again.C:
		case <-over.C:
			return nil, err
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the workspace: %w", context.Cause(ctx))
		}
	}
	if err := h.clear(); err != nil {
		return nil, errors.Join(err, h.lock.Close())
	}
	return h, nil
}

// sameFolder reports whether both paths are the same folder, mounted twice.
func sameFolder(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil || !x.IsDir() {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
}

func lockPath(data, site string) string { return SitePath(data, site) + ".lock" }

// lockSite locks a site and returns the lock file, which names the site's owner. The end of the
// process releases the lock. The error is a *HeldError if another process has the lock.
func lockSite(data, site string) (*os.File, error) {
	path := lockPath(data, site)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = &HeldError{Path: SitePath(data, site), By: owner(f)}
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The previous owner may have removed the file after it was opened here. A lock on a removed
		// file excludes no other attempt.
		locked, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there, err := os.Lstat(path); err == nil && os.SameFile(locked, there) {
			return f, nil
		}
		f.Close()
	}
}

// owner returns the attempt that the lock file names, or "" if the file names no valid attempt.
func owner(f *os.File) string {
	b := make([]byte, 128)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	id := string(b[:n])
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return "" // the name becomes part of a path, and a job can write the file
	}
	return id
}

// try locks the site, unless the tool of a dead step still runs there.
func (h *Held) try() error {
	f, err := lockSite(h.data, h.site)
	if err != nil {
		return err
	}
	if proctree.SurvivorAtWork(h.Path) {
		return errors.Join(&HeldError{Path: h.Path, By: owner(f)}, f.Close())
	}
	h.lock = f
	return nil
}

// clear removes the previous owner's files, and makes the empty workspace.
func (h *Held) clear() error {
	before := owner(h.lock)
	if before == "" {
		before = h.id
	}
	if err := h.link(before); err != nil { // the previous owner may have died before it made the link
		return fmt.Errorf("make workspace: %w", err)
	}
	if err := removeSite(h.data, h.site, before); err != nil {
		return err
	}
	if err := errors.Join(h.lock.Truncate(0), writeAt(h.lock, h.id), h.link(h.id), os.Mkdir(h.Path, 0o700)); err != nil {
		return fmt.Errorf("make workspace: %w", err)
	}
	return nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// link makes a symlink from the attempt's Path to the site.
func (h *Held) link(id string) error {
	err := os.Symlink(filepath.Join("..", Sites, h.site), Path(h.data, id))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// linked returns the site that the attempt's Path links to; "" if Path is no link to a site.
func linked(data, id string) string {
	to, err := os.Readlink(Path(data, id))
	if err != nil || filepath.Dir(to) != filepath.Join("..", Sites) {
		return ""
	}
	return filepath.Base(to)
}

// removeSite removes a workspace that the caller has locked. Before that, it salvages a state that the
// attempt's tool could not save.
func removeSite(data, site, id string) error {
	if _, err := Salvage(data, id); err != nil && !errors.Is(err, ErrNotWhole) {
		return err
	}
	if err := RemoveTree(SitePath(data, site)); err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	if err := os.Remove(Path(data, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove workspace: %w", err)
	}
	return nil
}

// release does what Remove does, for an attempt that works at a site. If another attempt has the site
// now, release removes only the link: the other attempt salvages and removes the files.
func release(data, site, id string) error {
	lock, err := lockSite(data, site)
	_, taken := errors.AsType[*HeldError](err)
	if err != nil && !taken {
		return fmt.Errorf("remove workspace: %w", err)
	}
	if !taken {
		defer lock.Close()
		of := owner(lock)
		taken = of != id && of != ""
	}
	if taken {
		if err := os.Remove(Path(data, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove workspace: %w", err)
		}
		return nil
	}
	if err := removeSite(data, site, id); err != nil {
		return err
	}
	return os.Remove(lockPath(data, site))
}

// Release releases the workspace and leaves its files. The end of the process has the same effect.
func (h *Held) Release() error {
	if h.lock == nil {
		return nil
	}
	return h.lock.Close()
}

// Remove removes the workspace and releases it. Before that, it salvages a state that the tool could
// not save.
func (h *Held) Remove() error {
	if h.lock == nil {
		return Remove(h.data, h.id)
	}
	defer h.lock.Close()
	if err := removeSite(h.data, h.site, h.id); err != nil {
		return err
	}
	return os.Remove(lockPath(h.data, h.site))
}
