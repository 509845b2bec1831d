package testserver

import (
	"os/exec"
	"slices"
)

// Java returns a command that runs a server with the Java on PATH. The command turns off
// Java's second compiler, which optimizes the code. That compiler would take half of the
// server's CPU time, and the tests are too short to gain from optimized code.
func Java(args ...string) *exec.Cmd {
	return exec.Command("java", slices.Concat([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, args)...)
}
