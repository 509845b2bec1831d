package ecstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Shares are parts of the CPU for processes, as the tasks of Fargate have them: groups of the kernel with a quota.
type Shares struct {
	dir string // folder in which groups are made
	v2  bool   // the second version of the kernel's groups, with one folder for all controllers
	n   int
}

// NewShares returns an error if this process may not make groups of the kernel, as in most containers. The groups are removed when the
// test ends.
func NewShares(t testing.TB) (*Shares, error) {
	s := &Shares{dir: "/sys/fs/cgroup/cpu"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		s = &Shares{dir: "/sys/fs/cgroup", v2: true}
	}
	parent := s.dir
	at, err := os.MkdirTemp(parent, "fairlead-test-*")
	if err != nil {
		return nil, err
	}
	s.dir = at
	t.Cleanup(func() { s.remove(t) })
	// Each file with what it gets. On Fargate, a task has its CPU whatever else runs, so here its share comes before other processes.
	writes := [][2]string{{filepath.Join(at, "cpu.shares"), "262144"}}
	if s.v2 { // a group's children have the controllers that it lists
		writes = [][2]string{{filepath.Join(parent, "cgroup.subtree_control"), "+cpu"}, {filepath.Join(at, "cgroup.subtree_control"), "+cpu"}, {filepath.Join(at, "cpu.weight"), "10000"}}
	}
	for _, w := range writes {
		if err := os.WriteFile(w[0], []byte(w[1]), 0o644); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Shares) quota() string {
	if s.v2 {
		return "cpu.max"
	}
	return "cpu.cfs_quota_us"
}

// Limit makes the command and its children share so many 1,024ths of a CPU. Call it before the command starts.
func (s *Shares) Limit(cmd *exec.Cmd, units int) error {
	const period = 100_000 // microseconds; that of Docker and of the kernel
	s.n++
	group := filepath.Join(s.dir, strconv.Itoa(s.n))
	quota := strconv.Itoa(units * period / 1024)
	if s.v2 {
		quota += " " + strconv.Itoa(period)
	}
	if err := errors.Join(os.Mkdir(group, 0o755), os.WriteFile(filepath.Join(group, s.quota()), []byte(quota), 0o644)); err != nil {
		return fmt.Errorf("limit the CPU: %w", err)
	}
	// The shell joins the group before it becomes the program, so no child is outside.
	cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	return nil
}

// Throttled reports whether the kernel has made processes of a group wait because the group had used its share.
func (s *Shares) Throttled() bool {
	stats, _ := filepath.Glob(filepath.Join(s.dir, "*", "cpu.stat"))
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if _, after, ok := strings.Cut(string(text), "nr_throttled "); err == nil && ok && !strings.HasPrefix(after, "0") {
			return true
		}
	}
	return false
}

// remove removes the groups. The kernel needs some time after the end of a process.
func (s *Shares) remove(t testing.TB) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		groups, _ := filepath.Glob(filepath.Join(s.dir, "*", "cgroup.procs"))
		var failed []error
		for _, g := range groups {
			failed = append(failed, os.Remove(filepath.Dir(g)))
		}
		err := errors.Join(append(failed, os.Remove(s.dir))...)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Logf("groups of the kernel remain: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
			return
		}
	}
}
