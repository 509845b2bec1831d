package supervise

import "syscall"

// attributes returns the attributes of the agent's process. Its own process group keeps
// a terminal's Ctrl-C away: only this process signals the agent. The kernel kills the
// agent when this process is killed. The steps continue, and the next agent adopts them.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
