//go:build unix && !linux

package proctree

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Stat reports on this system only that the process exists.
func Stat(pid int) (Info, error) {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return Info{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Info{PID: pid}, nil
}

// HasArgument returns false: on this system the package does not read command lines.
func HasArgument(int, string) bool { return false }

// All returns nothing: other systems have no /proc.
func All() ([]Info, error) { return nil, nil }

// Find returns nothing: other systems have no /proc.
func Find(int, string) ([]Info, error) { return nil, nil }

// KillAll kills the process group of the session's leader. On this system it does not reach processes
// that left the group.
func KillAll(ctx context.Context, session int, _ string) (int, error) {
	n := 0
	for session > 1 {
		err := syscall.Kill(-session, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) { // EPERM: only zombies are left
			break
		}
		if err != nil {
			return n, fmt.Errorf("kill process group %d: %w", session, err)
		}
		n = 1
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-time.After(killPause):
		}
	}
	return n, nil
}

// KillDescendants does nothing on this system: the agent kills the process group.
func KillDescendants(context.Context) (int, error) { return 0, nil }

// SignalDescendants does nothing on this system.
func SignalDescendants() {}

// KillChildren does nothing on this system: a process adopts no orphans.
func KillChildren(context.Context, func() ([]Info, error)) error { return nil }

// ReapWhile does nothing on this system.
func ReapWhile(func(Info) bool) {}

// ReapAdopted does nothing on this system: a process adopts no orphans.
func ReapAdopted(context.Context) {}

// KillTree does nothing on this system: there is no shim to kill.
func KillTree(context.Context, int, uint64) error { return nil }

// BecomeSubreaper does nothing on this system.
func BecomeSubreaper() error { return nil }

// Hide does nothing on this system.
func Hide() error { return nil }

// WaitGone polls until the process has ended.
func WaitGone(ctx context.Context, pid int, start uint64) error {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	for Alive(pid, start) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
	return nil
}

// Alive reports whether a process with this PID exists.
func Alive(pid int, _ uint64) bool {
	_, err := Stat(pid)
	return err == nil
}
