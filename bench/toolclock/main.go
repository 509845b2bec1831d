// Command toolclock replaces OpenTofu in a benchmark. It runs the real program, whose path
// is in the file "tool" beside it. It appends the start and end of each run to the file
// "times" beside it. It is no shell script, because few shells can read a clock. It must
// be small, because its own start, some 2 ms, counts as time of Fairlead.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "toolclock:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	dir := filepath.Dir(self)
	tool, err := os.ReadFile(filepath.Join(dir, "tool"))
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(strings.TrimSpace(string(tool)), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	begin := time.Now()
	err = cmd.Run()
	end := time.Now()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	f, err := os.OpenFile(filepath.Join(dir, "times"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	// One write, so that the lines of tools that end at the same time do not mix.
	_, err = fmt.Fprintf(f, "%s %d %d\n", command, begin.UnixNano(), end.UnixNano())
	return cmd.ProcessState.ExitCode(), errors.Join(err, f.Close())
}
