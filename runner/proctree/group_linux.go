package proctree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Group is the folder of a control group (cgroups(7), version 2), "" for none.
// What a process of it starts is in it as well, and ends with it, whatever
// session, parent and environment it has made for itself.
type Group string

// ErrNoGroup says that this process may make no control group, or that the
// kernel has none that can be killed (before 5.14).
var ErrNoGroup = errors.New("no control group can be made here")

// FindGroup returns the group of that name below the one that this process is
// in, whether it is there or not.
func FindGroup(name string) (Group, error) {
	own, err := ownGroup()
	if err != nil {
		return "", err
	}
	return Group(filepath.Join(own, name)), nil
}

// MakeGroup makes a group below the one that this process is in, or returns
// ErrNoGroup.
func MakeGroup(name string) (Group, error) {
	g, err := FindGroup(name)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(string(g), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%w: %w", ErrNoGroup, err)
	}
	if err := unix.Access(g.file("cgroup.kill"), unix.W_OK); err != nil {
		os.Remove(string(g))
		return "", fmt.Errorf("%w: %w", ErrNoGroup, err)
	}
	return g, nil
}

// GroupOf returns the name of the control group that a process is in, without
// those above it, or "" if that is not known.
func GroupOf(pid int) string {
	path, _ := groupPath(strconv.Itoa(pid))
	return filepath.Base(path)
}

// groupPath returns the path of a process' control group in the hierarchy.
func groupPath(pid string) (path string, found bool) {
	b, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(b)) {
		if path, found = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			return path, true
		}
	}
	return "", false
}

// ownGroup returns the folder of the control group that this process is in.
func ownGroup() (string, error) {
	own, found := groupPath("self")
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !found || strings.HasPrefix(own, "/..") { // that is outside of what we see
		return "", fmt.Errorf("%w: version 2 is not to be had (%v)", ErrNoGroup, err)
	}
	for line := range strings.Lines(string(mounts)) {
		place, kind, _ := strings.Cut(line, " - ")
		f := strings.Fields(place)
		if len(f) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		// Fields 4 and 5: what of the hierarchy is mounted, and where.
		if below, err := filepath.Rel(f[3], own); err == nil && !strings.HasPrefix(below, "..") {
			return filepath.Join(f[4], below), nil
		}
	}
	return "", fmt.Errorf("%w: version 2 is not mounted", ErrNoGroup)
}

func (g Group) file(name string) string { return filepath.Join(string(g), name) }

// Open opens the group's folder, to start a process in it.
func (g Group) Open() (*os.File, error) { return os.Open(string(g)) }

// populated reports whether a process is in the group of this file, or in one
// below it.
func populated(events *os.File) (bool, error) {
	if _, err := events.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("look into a control group: %w", err)
	}
	b, err := io.ReadAll(events)
	if errors.Is(err, unix.ENODEV) { // it was removed meanwhile
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look into a control group: %w", err)
	}
	return !bytes.Contains(b, []byte("populated 0")), nil
}

// again is how long the end of a killed group is waited for before it is killed
// again, in milliseconds.
const again = 100

// Kill kills all that is in the group, at once, so that nothing can get away by
// starting something else, and returns when nothing is left. A group that is not
// there has nothing in it.
func (g Group) Kill(ctx context.Context) error {
	if g == "" {
		return nil
	}
	events, err := os.Open(g.file("cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill a control group: %w", err)
	}
	defer events.Close()
	for {
		left, err := populated(events)
		if err != nil || !left {
			return err
		}
		if err := os.WriteFile(g.file("cgroup.kill"), []byte("1"), 0); err != nil {
			return fmt.Errorf("kill a control group: %w", err)
		}
		// The kernel says when the file changes.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, again); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the end of a control group: %w", err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the processes of a control group do not end: %w", ctx.Err())
		}
	}
}

// Remove kills what is in the group, and removes it with those that a job has
// made below it.
func (g Group) Remove(ctx context.Context) error {
	if _, err := os.Stat(string(g)); g == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := g.Kill(ctx); err != nil {
		return err
	}
	var folders []string
	err := filepath.WalkDir(string(g), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	for i := len(folders) - 1; err == nil && i >= 0; i-- {
		err = os.Remove(folders[i])
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a control group: %w", err)
	}
	return nil
}
