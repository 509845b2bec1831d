package proctree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stat returns what is known of a process.
func Stat(pid int) (Info, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Info{}, err
	}
	return parseStat(pid, b)
}

// parseStat reads /proc/<pid>/stat: the name is in parentheses and may hold
// anything, so the fields are counted from the last one.
func parseStat(pid int, b []byte) (Info, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Info{}, fmt.Errorf("process %d: unreadable stat", pid)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return Info{}, fmt.Errorf("process %d: unreadable stat", pid)
	}
	num := func(n int) int { v, _ := strconv.Atoi(string(f[n])); return v }
	start, _ := strconv.ParseUint(string(f[19]), 10, 64)
	return Info{PID: pid, State: f[0][0], Parent: num(1), Group: num(2), Session: num(3), Start: start}, nil
}

// All lists every process that can be seen.
func All() ([]Info, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []Info
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, err := Stat(pid); err == nil { // else it ended meanwhile
			all = append(all, p)
		}
	}
	return all, nil
}

// marked reports whether the environment that the process began with holds
// mark, "name=value".
func marked(pid int, mark string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if string(v) == mark {
			return true
		}
	}
	return false
}

// HasArgument reports whether arg is on the process' command line.
func HasArgument(pid int, arg string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	for a := range bytes.SplitSeq(b, []byte{0}) {
		if string(a) == arg {
			return true
		}
	}
	return false
}

// Find returns the processes that are in the session (if that is not 0) or
// carry the mark (if that is not ""), zombies and the caller excepted.
func Find(session int, mark string) ([]Info, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var found []Info
	for _, p := range all {
		if p.State == 'Z' || p.State == 'X' || p.PID == os.Getpid() {
			continue
		}
		if session != 0 && p.Session == session || mark != "" && marked(p.PID, mark) {
			found = append(found, p)
		}
	}
	return found, nil
}

// KillAll kills what Find finds until it finds nothing, so that a process which
// forks while it is being killed does not get away. It returns how many
// processes it killed. On an error some may be left.
func KillAll(ctx context.Context, session int, mark string) (int, error) {
	return killUntilNone(ctx, session, func() ([]Info, error) { return Find(session, mark) })
}

// KillDescendants kills every process that descends from the caller, and
// returns when none is left. The caller must be a subreaper (see
// BecomeSubreaper) for this to reach processes whose parents have ended, and
// must not be waiting for a child elsewhere.
func KillDescendants(ctx context.Context) (int, error) {
	if _, err := peekChild(); errors.Is(err, unix.ECHILD) {
		return 0, nil // the usual case, for the price of one system call
	}
	return killUntilNone(ctx, 0, func() ([]Info, error) { return descendants(os.Getpid()) })
}

// KillBelow kills every process that descends from another one, which must be a
// subreaper that reaps its children and ends when it has none, until that one
// has ended.
func KillBelow(ctx context.Context, pid int, start uint64) error {
	for Alive(pid, start) {
		unix.Kill(pid, unix.SIGCONT) // stopped, it would reap nothing
		ps, err := descendants(pid)
		if err != nil {
			return err
		}
		if _, err := kill(ps); err != nil {
			return err
		}
		moment, cancel := context.WithTimeout(ctx, gone)
		err = WaitGone(moment, pid, start)
		cancel()
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%d processes do not end: %w", len(ps), ctx.Err())
		}
	}
	return nil
}

// SignalDescendants kills the caller's descendants once, without reaping: for
// use while a child is waited for elsewhere.
func SignalDescendants() {
	ps, err := descendants(os.Getpid())
	if err != nil {
		return
	}
	for _, p := range ps {
		unix.Kill(p.PID, unix.SIGKILL)
	}
}

// KillChildren kills children of the caller, which find returns, and what
// becomes one when its parent is killed, until find returns none. It reaps them.
func KillChildren(ctx context.Context, find func() ([]Info, error)) error {
	for {
		ps, err := find()
		if err != nil || len(ps) == 0 {
			return err
		}
		if _, err := kill(ps); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end: %w", len(ps), ctx.Err())
		case <-time.After(gone):
		}
		for _, p := range ps {
			unix.Wait4(p.PID, nil, unix.WNOHANG, nil) // not ended yet: next time
		}
	}
}

// ReapWhile reaps children of the caller that have ended, until there is none,
// or one that is no orphan: that one is waited for elsewhere.
func ReapWhile(orphan func(Info) bool) {
	for {
		pid, err := peekChild()
		if err != nil || pid == 0 {
			return
		}
		p, err := Stat(pid)
		if err != nil || !orphan(p) {
			return
		}
		unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

// peekChild returns the number of a child that has ended, without reaping it: it
// may be waited for elsewhere. It is 0 if none has ended, and ECHILD if there is
// none.
func peekChild() (pid int, err error) {
	var info struct { // the beginning of siginfo_t; its union is aligned as a pointer is
		signo, errno, code int32
		child              struct {
			_   [0]uintptr
			pid int32
		}
		_ [128]byte
	}
	for {
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return int(info.child.pid), err
		}
	}
}

// KillTree kills a subreaper and all that descends from it. It is stopped until
// nothing else is left, so that what it reaps or starts is not missed.
func KillTree(ctx context.Context, pid int, start uint64) error {
	if !Alive(pid, start) {
		return nil
	}
	self := []Info{{PID: pid}}
	unix.Kill(pid, unix.SIGSTOP)
	_, err := killUntilNone(ctx, 0, func() ([]Info, error) { return descendants(pid) })
	if err != nil {
		return err
	}
	_, err = killUntilNone(ctx, 0, func() ([]Info, error) {
		if Alive(pid, start) {
			return self, nil
		}
		return nil, nil
	})
	return err
}

// descendants lists what descends from a process, zombies excepted.
func descendants(pid int) ([]Info, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	children := map[int][]Info{}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var found []Info
	var walk func(int)
	walk = func(pid int) {
		for _, c := range children[pid] {
			if c.State != 'Z' && c.State != 'X' {
				found = append(found, c)
			}
			walk(c.PID)
		}
	}
	walk(pid)
	return found, nil
}

// killUntilNone reaps what was orphaned to the caller, except leader, which is
// the caller's own child and waited for elsewhere.
func killUntilNone(ctx context.Context, leader int, find func() ([]Info, error)) (int, error) {
	killed := map[int]bool{}
	for {
		ps, err := find()
		if err != nil {
			return len(killed), err
		}
		if len(ps) == 0 {
			return len(killed), nil
		}
		hit, err := kill(ps)
		for _, pid := range hit {
			killed[pid] = true
		}
		if err != nil {
			return len(killed), err
		}
		select {
		case <-ctx.Done():
			return len(killed), fmt.Errorf("%d processes do not end: %w", len(ps), ctx.Err())
		case <-time.After(gone):
		}
		for pid := range killed {
			if pid != leader {
				unix.Wait4(pid, nil, unix.WNOHANG, nil) // fails for what is not our child: fine
			}
		}
	}
}

// kill kills the processes and returns the numbers of those that it could. One
// that may not be killed, as of another user, keeps no other one alive.
func kill(ps []Info) (hit []int, err error) {
	for _, p := range ps {
		switch kerr := unix.Kill(p.PID, unix.SIGKILL); {
		case kerr == nil:
			hit = append(hit, p.PID)
		case !errors.Is(kerr, unix.ESRCH):
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", p.PID, kerr))
		}
	}
	return hit, err
}

// BecomeSubreaper makes the caller the parent of every descendant whose own
// parent ends, so that none can leave its sight by forking twice.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// Hide keeps other processes of the same user from reading the caller's
// environment and memory, and from tracing it. What it starts is as open as any.
func Hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the process from others of its user: %w", err)
	}
	return nil
}

// WaitGone returns when the process, which need not be a child, has ended, or
// when ctx ends. It waits on a process descriptor: no polling, and no confusion
// with a later process of the same number.
func WaitGone(ctx context.Context, pid int, start uint64) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return pollGone(ctx, pid, start)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	// The descriptor pins whatever has the number now: was it the one we mean?
	if p, err := Stat(pid); err != nil || p.Start != start || p.State == 'Z' {
		return nil
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return pollGone(ctx, pid, start)
	}
	stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = rc.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return pollGone(ctx, pid, start)
	}
	return nil
}

// pollGone is WaitGone where the kernel has no process descriptors (before 5.3).
func pollGone(ctx context.Context, pid int, start uint64) error {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	for {
		if !Alive(pid, start) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// Alive reports whether the process that began at start is still there.
func Alive(pid int, start uint64) bool {
	p, err := Stat(pid)
	return err == nil && p.Start == start && p.State != 'Z' && p.State != 'X'
}
