package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsyscall "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Supported reports whether this kernel has Landlock, and lets us use it.
func Supported() bool {
	abi, err := llsyscall.LandlockGetABIVersion()
	return err == nil && abi >= 1
}

// Run runs f, which starts processes, and returns its error. What f starts by
// itself, not in another goroutine, is confined for good, with all that it
// starts. So is f, but for what it asks other goroutines to do.
func Run(r Reach, f func() error) error {
	done := make(chan error, 1)
	onThread(func() {
		if err := enter(r); err != nil {
			done <- fmt.Errorf("confine the tool: %w", err)
			return
		}
		done <- f()
	})
	return <-done
}

// onThread runs f on a thread of its own, which ends with it. It is
// never the process's first: a signal for the process counts as one for that, and
// from within its confinement a tool may send one.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is of no use to others
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		elsewhere := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(elsewhere)
			f()
		}()
		<-elsewhere // until then the first thread is ours, so the other has another
		runtime.UnlockOSThread()
	}()
}

// handled are the accesses to files that are refused where no rule grants them,
// by the version of Landlock that has brought them. Connecting to a socket by its
// path, which version 9 adds, is not among them, so that tools reach a Docker
// Engine as they do on older kernels.
var handled = [...]landlock.AccessFSSet{
	1: llsyscall.AccessFSExecute | llsyscall.AccessFSWriteFile | llsyscall.AccessFSReadFile | llsyscall.AccessFSReadDir | llsyscall.AccessFSRemoveDir |
		llsyscall.AccessFSRemoveFile | llsyscall.AccessFSMakeChar | llsyscall.AccessFSMakeDir | llsyscall.AccessFSMakeReg | llsyscall.AccessFSMakeSock |
		llsyscall.AccessFSMakeFifo | llsyscall.AccessFSMakeBlock | llsyscall.AccessFSMakeSym,
	2: llsyscall.AccessFSRefer,
	3: llsyscall.AccessFSTruncate,
	5: llsyscall.AccessFSIoctlDev,
}

const (
	read = llsyscall.AccessFSExecute | llsyscall.AccessFSReadFile | llsyscall.AccessFSReadDir
	all  = ^landlock.AccessFSSet(0)
	// ofFiles are the rights that a file, which is no folder, can be granted.
	ofFiles = llsyscall.AccessFSExecute | llsyscall.AccessFSWriteFile | llsyscall.AccessFSReadFile | llsyscall.AccessFSTruncate | llsyscall.AccessFSIoctlDev
)

// signalsSince is the version that keeps signals within a confinement.
const signalsSince = 6

// sameProcess is the erratum without which threads of one process cannot send
// each other signals either, as Go's runtime does.
const sameProcess = 1 << 1

// enter confines the calling thread, for good.
func enter(r Reach) error {
	abi, err := llsyscall.LandlockGetABIVersion()
	if err != nil {
		return fmt.Errorf("this kernel has no Landlock: %w", err)
	}
	var rights landlock.AccessFSSet
	for since, more := range handled {
		if since <= abi {
			rights |= more
		}
	}
	anywhere := slices.Contains(r.Write, "/")
	if anywhere {
		// To move is refused by every ruleset that does not grant it. What is moved
		// to where more may be done with it is refused all the same.
		rights &= read | llsyscall.AccessFSRefer
	}
	attr := llsyscall.RulesetAttr{HandledAccessFS: uint64(rights)}
	if errata, err := llsyscall.LandlockGetErrata(); abi >= signalsSince && err == nil && errata&sameProcess != 0 {
		attr.Scoped = llsyscall.ScopeSignal
	}
	fd, err := llsyscall.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return fmt.Errorf("make a Landlock ruleset: %w", err)
	}
	defer unix.Close(fd)
	s := ruleset{fd: fd, rights: rights}
	s.add(read, r.Own.Read...)
	s.add(all, r.Own.Write...)
	s.add(all, devices()...)
	s.add(llsyscall.AccessFSReadDir, "/dev")
	if anywhere {
		s.add(llsyscall.AccessFSRefer, "/")
	}
	private := resolved(slices.Concat(r.Private, r.Own.Private))
	for _, path := range resolved(r.Read) {
		s.around(path, private, read)
	}
	for _, path := range resolved(r.Write) {
		s.around(path, private, all)
	}
	if s.err != nil {
		return s.err
	}
	dropCapabilities()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up privileges to come: %w", err)
	}
	if err := llsyscall.LandlockRestrictSelf(fd, 0); err != nil {
		return fmt.Errorf("enforce the Landlock ruleset: %w", err)
	}
	return nil
}

// dropCapabilities takes from what the thread starts, where that is root, what
// leads around Landlock: tracing, which lets one read the thread's own memory,
// and what reaches the kernel's, or its disks'.
func dropCapabilities() {
	for _, c := range []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_SYS_ADMIN, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_MKNOD,
		unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE} {
		unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) // fails where there is none to give up
	}
}

// resolved resolves links; what is not there is left out.
func resolved(paths []string) []string {
	var out []string
	for _, p := range paths {
		if r, err := filepath.EvalSymlinks(p); err == nil && filepath.IsAbs(r) {
			out = append(out, r)
		}
	}
	return out
}

type ruleset struct {
	fd     int
	rights landlock.AccessFSSet // that are handled
	err    error                // the first
}

// add grants access to what is at and below the paths.
func (s *ruleset) add(access landlock.AccessFSSet, paths ...string) {
	for _, path := range paths {
		s.grant(access, path, 0)
	}
}

func (s *ruleset) grant(access landlock.AccessFSSet, path string, flags int) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return // it is not there, or what we cannot reach, no tool can
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		s.err = errors.Join(s.err, &fs.PathError{Op: "stat", Path: path, Err: err})
		return
	}
	switch access &= s.rights; st.Mode & unix.S_IFMT {
	case unix.S_IFLNK: // leads to what has a rule of its own, or to nothing
		return
	case unix.S_IFDIR:
	default:
		access &= ofFiles
	}
	if access == 0 {
		return
	}
	err = llsyscall.LandlockAddPathBeneathRule(s.fd, &llsyscall.PathBeneathAttr{AllowedAccess: uint64(access), ParentFd: fd}, 0)
	if err != nil && !errors.Is(err, syscall.EBADFD) { // EBADFD: of the kernel's own, which no process is kept from
		s.err = errors.Join(s.err, fmt.Errorf("grant %s: %w", path, err))
	}
}

// around grants access to what is at and below the path, which has no links in
// it, but for what is private.
func (s *ruleset) around(path string, private []string, access landlock.AccessFSSet) {
	within := false // something private is
	for _, p := range private {
		if below(path, p) {
			return
		}
		within = within || below(p, path)
	}
	if !within {
		s.grant(access, path, unix.O_NOFOLLOW)
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return // then no tool can
	}
	for _, e := range entries {
		s.around(filepath.Join(path, e.Name()), private, access)
	}
}

// below reports whether path is at or below folder.
func below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}
