//go:build !linux

package supervise

import "syscall"

// attributes keep a terminal's Ctrl-C from the agent, which gets its signals
// from here.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
