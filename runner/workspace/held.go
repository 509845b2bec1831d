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

// Sites is the folder, below the runner's data folder, of the workspaces of
// components. What a module makes of its own path (path.cwd, abspath) is in its
// plan and its state, so all jobs of a component work at one path.
const Sites = "components"

// SiteOf names the workspace of a component of an install, "" if one of them is
// not known. It is short, because providers make sockets in workspaces.
func SiteOf(installID, component string) string {
	if installID == "" || component == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(installID + "/" + component))
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
}

// SitePath returns the workspace of that name.
func SitePath(data, site string) string { return filepath.Join(data, Sites, site) }

// HeldError says that another attempt, or its tool, is at work in the workspace.
type HeldError struct {
	Path string
	By   string // the attempt; "" if it is not known
}

func (e *HeldError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("another attempt works in the folder %s", e.Path)
	}
	return fmt.Sprintf("the attempt %s works in the folder %s", e.By, e.Path)
}

// Held is a workspace that an attempt has for itself, until Remove or the end of
// the process.
type Held struct {
	Path string // of the empty folder, readable by its owner alone

	data, site, id string
	lock           *os.File // nil: no other attempt uses this path
}

// lookAgain is the pause between two looks at a lock. The attempt before lets go
// of it some milliseconds after its report was taken.
const lookAgain = 5 * time.Millisecond

// Take gives the workspace of that site to the attempt id, and that of the
// attempt alone where site is "". What an earlier attempt has left there is
// salvaged and removed. The error is a *HeldError if another attempt has not let
// go of it within wait.
//
// Path(data, id) leads to the workspace as well, as long as the attempt has it.
// In a container that folder is mounted at both paths, and no lock is needed.
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
		again := time.NewTimer(lookAgain)
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

// sameFolder reports whether both paths are one folder, by a mount.
func sameFolder(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil || !x.IsDir() {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
}

func lockPath(data, site string) string { return SitePath(data, site) + ".lock" }

// lockSite locks a site, whose owner the file names. The lock goes with the
// process. The error is a *HeldError if another process has it.
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
		// The attempt that held the lock may have removed the file meanwhile. Then a
		// lock on this one keeps no other attempt out.
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

// owner returns the attempt that the lock's file names, "" if none.
func owner(f *os.File) string {
	b := make([]byte, 128)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	id := string(b[:n])
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return "" // it becomes part of a path
	}
	return id
}

// try locks the site, unless the tool of a step that died is at work there yet.
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

// clear takes what the owner before has left away, and makes the folder.
func (h *Held) clear() error {
	before := owner(h.lock)
	if before == "" {
		before = h.id
	}
	if err := h.link(before); err != nil { // it may have died before it did
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

// link makes Path of an attempt lead to the site.
func (h *Held) link(id string) error {
	err := os.Symlink(filepath.Join("..", Sites, h.site), Path(h.data, id))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// linked returns the site to which the path of the attempt leads, "" if it is a
// folder of its own.
func linked(data, id string) string {
	to, err := os.Readlink(Path(data, id))
	if err != nil || filepath.Dir(to) != filepath.Join("..", Sites) {
		return ""
	}
	return filepath.Base(to)
}

// removeSite removes a workspace that the caller has locked. A state that the tool
// of the attempt could not save is salvaged first.
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

// release is Remove of an attempt that works at a site. What another attempt has
// taken over, that one has salvaged or removes itself.
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

// Release lets go of the workspace and leaves what is in it, as the end of the
// process does.
func (h *Held) Release() error {
	if h.lock == nil {
		return nil
	}
	return h.lock.Close()
}

// Remove removes the workspace and lets go of it. A state that the tool could not
// save is salvaged first.
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
