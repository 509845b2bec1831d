package terraform

import "syscall"

// processGroup makes a process start in a group of its own. The kernel kills the process together with the step.
func processGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func changeTime(st *syscall.Stat_t) syscall.Timespec { return st.Ctim }
