package proctree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stat reads a process's status from /proc.
func Stat(pid int) (Info, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Info{}, err
	}
	return parseStat(pid, b)
}

// parseStat parses /proc/<pid>/stat. The process name is in parentheses and may contain any
// character, so the fields are counted from the last closing parenthesis.
func parseStat(pid int, b []byte) (Info, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Info{}, fmt.Errorf("process %d: cannot parse its stat file", pid)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return Info{}, fmt.Errorf("process %d: cannot parse its stat file", pid)
	}
	num := func(n int) int { v, _ := strconv.Atoi(string(f[n])); return v }
	start, _ := strconv.ParseUint(string(f[19]), 10, 64)
	return Info{PID: pid, State: f[0][0], Parent: num(1), Group: num(2), Session: num(3), Start: start}, nil
}

// All lists every process that is visible in /proc.
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
		if p, err := Stat(pid); err == nil { // otherwise it ended meanwhile
			all = append(all, p)
		}
	}
	return all, nil
}

// marked reports whether the process started with mark, "name=value", in its environment.
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

// HasArgument reports whether arg is one of the process's arguments.
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

// Find returns the processes that are in the session or have the mark in their environment, except
// zombies and the caller. Session 0 and mark "" match no process.
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

// KillAll kills the processes that Find returns until Find returns none, so that a process cannot
// escape by forking. It returns the number of killed processes. After an error, some processes may be
// left.
func KillAll(ctx context.Context, session int, mark string) (int, error) {
	return killUntilNone(ctx, session, func() ([]Info, error) { return Find(session, mark) })
}

// KillDescendants kills every descendant of the caller and returns when none is left. The caller must
// be a subreaper (see BecomeSubreaper), otherwise KillDescendants does not find processes whose
// parents have ended. While it runs, no other goroutine of the caller may wait for a child, except ReapAdopted.
func KillDescendants(ctx context.Context) (int, error) {
	if _, err := peekChild(); errors.Is(err, unix.ECHILD) {
		return 0, nil // usually there is no child, and the check needs only one system call
	}
	return killUntilNone(ctx, 0, func() ([]Info, error) { return descendants(os.Getpid()) })
}

// KillBelow kills the descendants of process pid until that process has ended. The process must be a
// subreaper that reaps its children and ends when it has none.
func KillBelow(ctx context.Context, pid int, start uint64) error {
	for Alive(pid, start) {
		unix.Kill(pid, unix.SIGCONT) // a stopped process reaps nothing
		ps, err := descendants(pid)
		if err != nil {
			return err
		}
		if _, err := kill(ps); err != nil {
			return err
		}
		moment, cancel := context.WithTimeout(ctx, killPause)
		err = WaitGone(moment, pid, start)
		cancel()
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%d processes do not end after a kill: %w", len(ps), ctx.Err())
		}
	}
	return nil
}

// SignalDescendants sends one SIGKILL to each descendant of the caller, without reaping. It may be
// used while another goroutine waits for a child.
func SignalDescendants() {
	ps, err := descendants(os.Getpid())
	if err != nil {
		return
	}
	for _, p := range ps {
		unix.Kill(p.PID, unix.SIGKILL)
	}
}

// KillChildren kills and reaps the children of the caller that find returns, until find returns none.
// When a child is killed, its own children can become children of the caller.
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
			return fmt.Errorf("%d processes do not end after a kill: %w", len(ps), ctx.Err())
		case <-time.After(killPause):
		}
		for _, p := range ps {
			unix.Wait4(p.PID, nil, unix.WNOHANG, nil) // a process that has not ended is reaped in a later round
		}
	}
}

// ReapWhile reaps the ended children of the caller. It stops when no ended child is left, or at the
// first ended child that is not an orphan: another goroutine waits for that child.
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

// ReapAdopted reaps the ended processes that the caller has adopted, as process 1 or as a subreaper, until ctx ends. It leaves
// the children that the caller started: another goroutine waits for each and needs its exit status. The caller does not know
// the PIDs of all of them, because terraform-exec starts some. A child that the caller started is in the caller's session, and
// in the caller's process group or in a group that it leads. An adopted process of that form is reaped only by KillDescendants.
func ReapAdopted(ctx context.Context) {
	ended := make(chan os.Signal, 1) // one is enough: each reapAdopted finds all ended children
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		reapAdopted()
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

func reapAdopted() {
	if pid, err := peekChild(); err != nil || pid == 0 {
		return
	}
	self, err := Stat(os.Getpid())
	if err != nil {
		return
	}
	all, err := All()
	if err != nil {
		return
	}
	for _, p := range all {
		started := p.Session == self.Session && (p.Group == self.Group || p.Group == p.PID)
		if p.Parent == self.PID && p.State == 'Z' && !started {
			unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
		}
	}
}

// peekChild returns the PID of a child that has ended. It does not reap the child, because another
// goroutine may wait for it. The PID is 0 if no child has ended. The error is ECHILD if the caller has no child.
func peekChild() (pid int, err error) {
	var info struct { // the beginning of siginfo_t; its union has the alignment of a pointer
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

// KillTree kills a subreaper and all its descendants. It first stops the subreaper (SIGSTOP), so that
// the subreaper starts and reaps no process while KillTree kills the descendants.
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

// descendants lists the descendants of a process, except zombies.
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

// killUntilNone kills the processes that find returns until find returns none and all of them have ended. It reaps the killed
// processes that are children of the caller, except leader: another goroutine waits for that child.
// It returns the number of killed processes.
func killUntilNone(ctx context.Context, leader int, find func() ([]Info, error)) (int, error) {
	killed := map[int]uint64{} // start by PID
	for {
		ps, err := find()
		if err != nil {
			return len(killed), err
		}
		// A killed process loses its environment before its files, so find does not see its mark any more.
		ending := 0
		for pid, start := range killed {
			if Alive(pid, start) {
				ending++
			}
		}
		if len(ps) == 0 && ending == 0 {
			return len(killed), nil
		}
		hit, err := kill(ps)
		for _, p := range hit {
			killed[p.PID] = p.Start
		}
		if err != nil {
			return len(killed), err
		}
		select {
		case <-ctx.Done():
			return len(killed), fmt.Errorf("%d processes do not end after a kill: %w", max(len(ps), ending), ctx.Err())
		case <-time.After(killPause):
		}
		for pid := range killed {
			if pid != leader {
				unix.Wait4(pid, nil, unix.WNOHANG, nil) // fails for a process that is not a child; that is harmless
			}
		}
	}
}

// kill kills the processes and returns the killed processes. It continues after a process
// that it may not kill, such as a process of another user.
func kill(ps []Info) (hit []Info, err error) {
	for _, p := range ps {
		switch kerr := unix.Kill(p.PID, unix.SIGKILL); {
		case kerr == nil:
			hit = append(hit, p)
		case !errors.Is(kerr, unix.ESRCH):
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", p.PID, kerr))
		}
	}
	return hit, err
}

// BecomeSubreaper makes the caller the parent of every descendant whose own parent ends, so that no
// descendant can escape by forking twice.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// Hide prevents other processes of the same user from reading the caller's environment and memory,
// and from tracing it. Programs that the caller starts are not hidden.
func Hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the process from other processes of its user: %w", err)
	}
	return nil
}

// WaitGone returns when the process has ended, or when ctx ends. The process need not be a child.
// WaitGone waits on a pidfd, so it does not poll, and a later process with the same PID does not
// confuse it.
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
	// The pidfd belongs to the process that has the PID now. Check that this is the process that started
	// at start.
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

// pollGone is WaitGone for kernels without pidfds (before 5.3).
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

// Alive reports whether the process that started at start still runs. A zombie does not run.
func Alive(pid int, start uint64) bool {
	p, err := Stat(pid)
	return err == nil && p.Start == start && p.State != 'Z' && p.State != 'X'
}
