package terraform

import "syscall"

func changeTime(st *syscall.Stat_t) syscall.Timespec { return st.Ctim }
