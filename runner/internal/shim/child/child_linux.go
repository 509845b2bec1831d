package child

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// init makes this process a shim if it was started as one.
func init() {
	if len(os.Args) > 1 && os.Args[0] == Name {
		os.Exit(run(os.Args[1:]))
	}
}

// run starts argv and returns when nothing is left below this process.
func run(argv []string) int {
	syscall.CloseOnExec(Report)
	// Its environment has the launch token, and a tool that could trace it could
	// have it say that all is over. What it starts is as open as any.
	for _, set := range [][2]uintptr{{setChildSubreaper, 1}, {syscall.PR_SET_DUMPABLE, 0}} {
		if _, _, err := syscall.RawSyscall6(syscall.SYS_PRCTL, set[0], set[1], 0, 0, 0, 0); err != 0 {
			tell(Failed, "set up the process that keeps the step: "+err.Error())
			return 1
		}
	}
	step, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		tell(Failed, argv[0]+": "+err.Error())
		return 1
	}
	// After the start: the step would inherit it. What asks all processes of a
	// service to end means the step.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE} {
		ignore(sig)
	}
	tell(Began, strconv.Itoa(step))
	for {
		pid, ok := ended()
		if !ok {
			return 0
		}
		var status syscall.WaitStatus
		if n, err := syscall.Wait4(pid, &status, 0, nil); err == nil && n == step {
			tell(Ended, strconv.FormatUint(uint64(status), 10)) // if the agent is gone, the next one sees the end itself
		}
	}
}

func tell(what, more string) { syscall.Write(Report, []byte(what+" "+more+"\n")) }

// setChildSubreaper is PR_SET_CHILD_SUBREAPER of prctl(2).
const setChildSubreaper = 36

// ignore has a signal do nothing. os/signal would be initialised too late.
func ignore(sig syscall.Signal) {
	const ignored = 1
	action := [4]uintptr{ignored} // struct sigaction of the kernel, which begins with the handler
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// ended waits until a child has ended and returns its number, without reaping
// it. ok is false if there is no child.
func ended() (pid int, ok bool) {
	const (
		all      = 0          // P_ALL
		ended    = 0x00000004 // WEXITED
		unreaped = 0x01000000 // WNOWAIT
	)
	var info struct { // the beginning of siginfo_t; its union is aligned as a pointer is
		signo, errno, code int32
		child              struct {
			_   [0]uintptr
			pid int32
		}
		_ [128]byte
	}
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, all, 0, uintptr(unsafe.Pointer(&info)), ended|unreaped, 0, 0)
		if err != syscall.EINTR {
			return int(info.child.pid), err == 0
		}
	}
}
