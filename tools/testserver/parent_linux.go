package testserver

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the server when the test binary exits without
// Stop, for example after a timeout or a panic.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
