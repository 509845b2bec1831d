package testserver

import (
	"os/exec"
	"slices"
)

// Java returns a command that runs a server on the Java on PATH. Tests end before
// Java has compiled what it runs a second time and better, and half of the CPU that
// such a server takes in a run is the compiler's: it compiles once.
func Java(args ...string) *exec.Cmd {
	return exec.Command("java", slices.Concat([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, args)...)
}
