//go:build !linux

package testserver

import "os/exec"

// dieWithParent does nothing: this system has no such signal. If a test binary is
// killed, its server runs until a person kills it.
func dieWithParent(*exec.Cmd) {}
