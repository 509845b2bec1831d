package testserver

import (
	"os/exec"
	"slices"
)

// Java returns a command that runs a server with the Java on PATH. It turns off Java's
// second, optimizing compiler: the tests end before optimized code pays off, and that
// compiler would take half of the server's CPU time.
func Java(args ...string) *exec.Cmd {
	return exec.Command("java", slices.Concat([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, args)...)
}
