//go:build !linux

package supervise

import "syscall"

// attributes returns the attributes of the agent's process. Its own process group keeps
// a terminal's Ctrl-C away: only this process signals the agent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
