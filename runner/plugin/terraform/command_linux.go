package terraform

import "syscall"

// withStep starts a process in a group of its own, which the kernel kills together with the step.
func withStep() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func changeTime(st *syscall.Stat_t) syscall.Timespec { return st.Ctim }
