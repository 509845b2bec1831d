//go:build unix && !linux

package terraform

import "syscall"

// processGroup makes a process start in a group of its own.
func processGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// changeTime is always zero on this system: the other fields of fileVersion must suffice.
func changeTime(*syscall.Stat_t) syscall.Timespec { return syscall.Timespec{} }
