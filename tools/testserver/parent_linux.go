package testserver

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the server when the test binary dies
// without calling Stop, as it does when a test times out or panics.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
