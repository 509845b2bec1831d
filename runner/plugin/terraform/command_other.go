//go:build unix && !linux

package terraform

import "syscall"

// withStep starts a process in a group of its own.
func withStep() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// changeTime is always zero on this system: the other fields of seen must suffice.
func changeTime(*syscall.Stat_t) syscall.Timespec { return syscall.Timespec{} }
