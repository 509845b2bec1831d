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

// Supported reports whether this kernel has Landlock and lets this process use it.
func Supported() bool {
	abi, err := llsyscall.LandlockGetABIVersion()
	return err == nil && abi >= 1
}

// Run runs f on a confined thread and returns f's error. f is confined. The processes that f starts,
// and their descendants, are confined permanently. Other goroutines that f starts or uses are not
// confined.
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

// onThread runs f on a thread that ends with f. The thread is never the process's main thread, because
// a signal to the process counts as a signal to its main thread. A confined tool may signal the
// confined threads. If the main thread were confined, the tool could signal the step.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: the confined thread must end with this goroutine
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
		<-elsewhere // this goroutine holds the main thread until the other goroutine has its own thread
		runtime.UnlockOSThread()
	}()
}

// handled lists the kinds of file access that Landlock refuses unless a rule grants them. The index is
// the Landlock version that added the kinds. Version 9 adds a connection to a socket by its path. That
// kind is not in the list, so tools can reach a Docker Engine on new kernels as on older kernels.
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
	// ofFiles are the rights that Landlock accepts for a file that is not a folder.
	ofFiles = llsyscall.AccessFSExecute | llsyscall.AccessFSWriteFile | llsyscall.AccessFSReadFile | llsyscall.AccessFSTruncate | llsyscall.AccessFSIoctlDev
)

// scopesSince is the first Landlock version that can restrict signals and connections to abstract Unix
// sockets: a confined process can then reach only processes of the same confinement by them.
const scopesSince = 6

// sameProcess is the bit of a Landlock erratum. If the kernel has the fix, threads of one process may
// signal each other. Go's runtime needs these signals.
const sameProcess = 1 << 1

// enter confines the calling thread permanently.
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
		// A ruleset refuses to move files between folders unless it grants AccessFSRefer. Landlock
		// still refuses to move a file to a place where it would have more rights.
		rights &= read | llsyscall.AccessFSRefer
	}
	attr := llsyscall.RulesetAttr{HandledAccessFS: uint64(rights)}
	if abi >= scopesSince {
		attr.Scoped = llsyscall.ScopeAbstractUnixSocket
	}
	if errata, err := llsyscall.LandlockGetErrata(); abi >= scopesSince && err == nil && errata&sameProcess != 0 {
		attr.Scoped |= llsyscall.ScopeSignal
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
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := llsyscall.LandlockRestrictSelf(fd, 0); err != nil {
		return fmt.Errorf("enforce the Landlock ruleset: %w", err)
	}
	return nil
}

// dropCapabilities drops the capabilities with which a tool that runs as root could bypass Landlock:
// tracing, which gives access to the memory of other processes, and access to the kernel's memory and
// to disks.
func dropCapabilities() {
	for _, c := range []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_SYS_ADMIN, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_MKNOD,
		unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE} {
		unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) // fails if the process lacks the right to drop it; then it is not root
	}
}

// resolved resolves links in the paths and omits paths that do not exist.
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
	rights landlock.AccessFSSet // the handled rights
	err    error                // the errors of all rules
}

// add grants access to the paths and everything below them.
func (s *ruleset) add(access landlock.AccessFSSet, paths ...string) {
	for _, path := range paths {
		s.grant(access, path, 0)
	}
}

func (s *ruleset) grant(access landlock.AccessFSSet, path string, flags int) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return // the path does not exist, or no process of this user can reach it
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		s.err = errors.Join(s.err, &fs.PathError{Op: "stat", Path: path, Err: err})
		return
	}
	switch access &= s.rights; st.Mode & unix.S_IFMT {
	case unix.S_IFLNK: // the target needs a rule of its own
		return
	case unix.S_IFDIR:
	default:
		access &= ofFiles
	}
	if access == 0 {
		return
	}
	err = llsyscall.LandlockAddPathBeneathRule(s.fd, &llsyscall.PathBeneathAttr{AllowedAccess: uint64(access), ParentFd: fd}, 0)
	if err != nil && !errors.Is(err, syscall.EBADFD) { // EBADFD: a file of an internal file system, which Landlock does not restrict
		s.err = errors.Join(s.err, fmt.Errorf("grant %s: %w", path, err))
	}
}

// around grants access to the path and everything below it, except the private paths. The path must
// contain no links.
func (s *ruleset) around(path string, private []string, access landlock.AccessFSSet) {
	within := false // whether a private path is below path
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
		return // no tool of this user can read it either
	}
	for _, e := range entries {
		s.around(filepath.Join(path, e.Name()), private, access)
	}
}

// below reports whether path is at or below folder.
func below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}
