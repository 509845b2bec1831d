package supervise

import "syscall"

// attributes keep a terminal's Ctrl-C from the agent, which gets its signals
// from here, and end the agent when this process is killed: the next one
// starts an agent that takes over the steps, which go on meanwhile.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
