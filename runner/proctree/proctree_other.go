//go:build unix && !linux

package proctree

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Stat returns what is known of a process: here, that it is there.
func Stat(pid int) (Info, error) {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return Info{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Info{PID: pid}, nil
}

// HasArgument returns false: command lines are not read on this system.
func HasArgument(int, string) bool { return false }

// All returns nothing: other systems have no /proc.
func All() ([]Info, error) { return nil, nil }

// Find returns nothing: other systems have no /proc.
func Find(int, string) ([]Info, error) { return nil, nil }

// KillAll kills the process group that the session's leader leads. What has
// made a group of its own is not reached on this system.
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
		case <-time.After(gone):
		}
	}
	return n, nil
}

// KillDescendants does nothing on this system: the agent kills the group.
func KillDescendants(context.Context) (int, error) { return 0, nil }

// SignalDescendants does nothing on this system.
func SignalDescendants() {}

// KillChildren does nothing on this system, where no process is inherited.
func KillChildren(context.Context, func() ([]Info, error)) error { return nil }

// ReapWhile does nothing on this system.
func ReapWhile(func(Info) bool) {}

// KillTree does nothing on this system: there is no shim, so none is needed.
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

// Alive reports whether a process of this number is there.
func Alive(pid int, _ uint64) bool {
	_, err := Stat(pid)
	return err == nil
}
