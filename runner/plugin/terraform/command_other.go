//go:build unix && !linux

package terraform

import "syscall"

// withStep makes a process of a group of its own.
func withStep() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// changeTime is not looked at on this system: the other marks of a file must do.
func changeTime(*syscall.Stat_t) syscall.Timespec { return syscall.Timespec{} }
