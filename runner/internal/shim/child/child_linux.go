package child

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// init runs the shim if this process was started as a shim. In this case it does not return.
func init() {
	if len(os.Args) > 1 && os.Args[0] == Name {
		os.Exit(run(os.Args[1:]))
	}
}

// run starts argv as the step and returns when this process has no descendant left.
func run(argv []string) int {
	syscall.CloseOnExec(Report)
	// The shim's environment has the launch token, so it must not be readable. A tool that could trace
	// the shim could also forge its reports. The step that it starts is not hidden.
	for _, set := range [][2]uintptr{{setChildSubreaper, 1}, {syscall.PR_SET_DUMPABLE, 0}} {
		if _, _, err := syscall.RawSyscall6(syscall.SYS_PRCTL, set[0], set[1], 0, 0, 0, 0); err != 0 {
			report(Failed, "set up the shim: "+err.Error())
			return 1
		}
	}
	step, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		report(Failed, argv[0]+": "+err.Error())
		return 1
	}
	// The shim ignores these signals, because a service manager signals all processes of a service, but
	// only the step must react. It does so after the start of the step, because the step would inherit
	// ignored signals.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE} {
		ignore(sig)
	}
	report(Began, strconv.Itoa(step))
	for {
		pid, ok := ended()
		if !ok {
			return 0
		}
		var status syscall.WaitStatus
		if n, err := syscall.Wait4(pid, &status, 0, nil); err == nil && n == step {
			report(Ended, strconv.FormatUint(uint64(status), 10)) // if the agent has ended, the next agent detects the step's end without this report
		}
	}
}

// report writes a line to the agent.
func report(what, more string) { syscall.Write(Report, []byte(what+" "+more+"\n")) }

// setChildSubreaper is PR_SET_CHILD_SUBREAPER of prctl(2).
const setChildSubreaper = 36

// ignore ignores a signal. The package os/signal would be initialised too late.
func ignore(sig syscall.Signal) {
	const ignored = 1
	action := [4]uintptr{ignored} // the kernel's struct sigaction; its first field is the handler
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// ended waits until a child has ended and returns its PID, without reaping it. ok is false if this
// process has no child.
func ended() (pid int, ok bool) {
	const (
		all      = 0          // P_ALL
		ended    = 0x00000004 // WEXITED
		unreaped = 0x01000000 // WNOWAIT
	)
	var info struct { // the beginning of siginfo_t; its union has the alignment of a pointer
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
