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

// Group is the folder of a control group (cgroups(7), version 2). "" means that there is no group.
// Every process that a member starts is in the group too, whatever its session, parent and
// environment. So Kill kills all of them.
type Group string

// ErrNoGroup means that this process may not make a control group, or that the kernel cannot kill a
// control group (kernels before 5.14).
var ErrNoGroup = errors.New("cannot make a control group")

// FindGroup returns the group with that name below the group of this process. The group need not
// exist.
func FindGroup(name string) (Group, error) {
	own, err := ownGroup()
	if err != nil {
		return "", err
	}
	return Group(filepath.Join(own, name)), nil
}

// MakeGroup makes a group below the group of this process. An existing group is no error. The error
// wraps ErrNoGroup if no group can be made.
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

// GroupOf returns the last part of the path of a process's control group; "." if the group is
// unknown.
func GroupOf(pid int) string {
	path, _ := groupPath(strconv.Itoa(pid))
	return filepath.Base(path)
}

// groupPath returns the path of a process's control group in the hierarchy.
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

// ownGroup returns the folder of this process's control group.
func ownGroup() (string, error) {
	own, found := groupPath("self")
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !found || strings.HasPrefix(own, "/..") { // the group is outside of this cgroup namespace
		return "", fmt.Errorf("%w: cannot find this process's control group of version 2 (%v)", ErrNoGroup, err)
	}
	for line := range strings.Lines(string(mounts)) {
		place, kind, _ := strings.Cut(line, " - ")
		f := strings.Fields(place)
		if len(f) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		// Field 4 is the mounted part of the hierarchy, field 5 the mount point.
		if below, err := filepath.Rel(f[3], own); err == nil && !strings.HasPrefix(below, "..") {
			return filepath.Join(f[4], below), nil
		}
	}
	return "", fmt.Errorf("%w: no hierarchy of version 2 is mounted", ErrNoGroup)
}

func (g Group) file(name string) string { return filepath.Join(string(g), name) }

// Open opens the group's folder. The open file can be used to start a process in the group.
func (g Group) Open() (*os.File, error) { return os.Open(string(g)) }

// populated reports whether the group, or a group below it, has a process. events is the group's file
// cgroup.events.
func populated(events *os.File) (bool, error) {
	if _, err := events.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("read the events of a control group: %w", err)
	}
	b, err := io.ReadAll(events)
	if errors.Is(err, unix.ENODEV) { // the group was removed meanwhile
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the events of a control group: %w", err)
	}
	return !bytes.Contains(b, []byte("populated 0")), nil
}

// killWait is how long Kill waits for the end of a group before it kills the group again, in
// milliseconds.
const killWait = 100

// Kill kills every process of the group and of the groups below it, and returns when none is left.
// The kernel kills them at once, so no process escapes by forking. A group that does not exist is no
// error.
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
		// The kernel signals a change of the file.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, killWait); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the end of a control group: %w", err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the processes of a control group do not end after a kill: %w", ctx.Err())
		}
	}
}

// Remove kills the processes of the group. Then it removes the group and the groups that a job made
// below it.
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
